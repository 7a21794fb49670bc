// The doctor's findings; moves and plans; the embedded broker's faults and clock.

import { bar, bytes, copy, duration, get, h, number, pager, post, Problem, quoted, say, table, visible } from "./ui.js";

const FOLDED_FROM = 3; // findings of one check that are drawn at once
const commandIn = (text) => (/^(ottla|kafka-)\S* /.test(text) ? text : null);

export function doctorPage(context) {
  let found = null;
  let accepting = null;
  let problem = null;
  const open = new Set(); // kinds of which all are shown
  const wish = { reason: "", until: "" };
  const again = async () => { found = await get("doctor", { fresh: true }); context.draw(); };
  const accept = async (event) => {
    event.preventDefault();
    problem = null;
    try {
      await post("doctor/accept", { id: accepting.id, subject: accepting.subject, reason: wish.reason, until: wish.until });
      accepting = null;
      await context.reload();
      say("Accepted.");
    } catch (error) { if (!(error instanceof Problem)) throw error; problem = error.message; }
    context.draw();
  };
  const row = (each) => h("li", { key: `${each.id} ${each.subject} ${each.message}`, class: `finding ${each.severity}` },
    h("p", { class: "what" }, h("span", { class: `badge sev-${each.severity}` }, each.severity), h("span", { class: "badge" }, each.id), " ", h("strong", null, visible(each.message))),
    h("details", null, h("summary", null, visible(each.title)), h("p", null, visible(each.why))),
    h("p", { class: "fix" }, "Fix: ", h("code", { class: "wrap" }, visible(each.fix)), " ", commandIn(each.fix) ? copy(each.fix) : null, " ",
      context.session.may_write && context.session.has_baseline ? h("button", { type: "button", class: "small", onclick: () => { accepting = accepting === each ? null : each; problem = null; context.draw(); } }, "Accept until …") : null),
    accepting && accepting.id === each.id && accepting.subject === each.subject ? h("form", { class: "fields", onsubmit: accept },
      h("label", { class: "wide" }, "Why", h("input", { type: "text", required: true, value: wish.reason, maxlength: "500", autofocus: true, oninput: (event) => { wish.reason = event.target.value; } })),
      h("label", null, "Until", h("input", { type: "date", required: true, value: wish.until, oninput: (event) => { wish.until = event.target.value; } })),
      h("div", { class: "buttons" }, h("button", { type: "submit", class: "main" }, "Accept")), problem ? h("div", { class: "problem", role: "alert" }, problem) : null) : null);
  // Findings of one check and severity stand together, and only the first ones are drawn until somebody opens the rest.
  const kinds = (items) => {
    const by = new Map();
    for (const each of items) {
      const kind = `${each.severity} ${each.id}`;
      if (!by.has(kind)) by.set(kind, []);
      by.get(kind).push(each);
    }
    return [...by];
  };
  const group = ([kind, items]) => h("ul", { class: "findings", key: kind },
    (open.has(kind) ? items : items.slice(0, FOLDED_FROM)).map(row),
    items.length > FOLDED_FROM ? h("li", { key: "rest", class: "rest" }, h("button", { type: "button", class: "small", "aria-expanded": String(open.has(kind)), onclick: () => { if (!open.delete(kind)) open.add(kind); context.draw(); } },
      open.has(kind) ? `Show the first ${FOLDED_FROM}` : `${number(items.length - FOLDED_FROM)} more of ${items[0].id}: ${visible(items[0].title)}`)) : null);
  return {
    title: "Doctor",
    every: 30000,
    state: () => found && found.asked,
    load: async (signal) => { found = await get("doctor", {}, signal); },
    view: () => [
      h("div", { class: "head" }, h("h1", null, "Doctor"), h("div", { class: "tools" }, found ? h("span", { class: "quiet" }, `looked ${duration(found.age_ms)} ago`) : null, h("button", { type: "button", onclick: again }, "Look again"))),
      found ? [
        h("p", { role: "status" }, ["error", "warning", "note"].map((each) => h("span", { class: found.counts[each] ? `badge sev-${each}` : "badge" }, `${number(found.counts[each])} ${each}${found.counts[each] === 1 ? "" : "s"}`)), h("span", { class: "badge" }, `${found.checked.length} checks made`)),
        found.items.length ? kinds(found.items).map(group) : h("p", { class: "good" }, "Nothing found."),
        found.left_out ? h("p", { class: "quiet" }, `${number(found.left_out)} more: ottla doctor --format plain`) : null,
        found.accepted.length ? h("details", null, h("summary", null, `${number(found.accepted.length)} accepted`), h("ul", null, found.accepted.map((each) => h("li", null, `${each.id} ${visible(each.message)}`)))) : null,
        found.not_checked.length ? h("details", { class: "caution" }, h("summary", null, `${number(found.not_checked.length)} not checked, which is no good result`), h("ul", null, found.not_checked.map((each) => h("li", null, `${each.id}: ${visible(each.reason)}`)))) : null,
      ] : h("p", { class: "quiet" }, "Examining the cluster …"),
    ],
  };
}

const KINDS = [["rebalance", "Rebalance by bytes"], ["leaders", "Spread leaders"], ["dirs", "Even disks within brokers"], ["add-brokers", "Fill new brokers"], ["remove-brokers", "Empty brokers"]];

export function movesPage(context) {
  let found = null;
  let plan = null;
  let problem = null;
  let busy = false;
  let written = null;
  let ending = null; // moves that somebody is about to cancel
  const wish = { kind: "rebalance", brokers: "", topics: "", throttle: "", rate: "", all: "", confirm: "" };
  const nameOf = (each) => `${each.topic}-${each.partition}`;
  const run = async (act) => {
    busy = true;
    problem = null;
    context.draw();
    try { await act(); } catch (error) { if (!(error instanceof Problem)) throw error; problem = error.message; }
    busy = false;
    context.draw();
  };
  const asksBrokers = () => wish.kind !== "rebalance" && wish.kind !== "leaders";
  const make = () => run(async () => { written = null; plan = null; plan = await get("plan", { kind: wish.kind, brokers: asksBrokers() ? wish.brokers : "", topics: wish.topics }); });
  const carryOut = (only) => run(async () => {
    const given = plan.plan;
    plan = { ...plan, plan: null };
    written = await post("plan/run", { plan: given, throttle: wish.throttle, only_write: only, confirm: wish.confirm });
    plan = null;
    await context.reload();
  });
  const changeThrottle = (job) => run(async () => {
    await post("plan/throttle", { id: job.id, throttle: wish.rate, confirm: wish.confirm });
    say("The throttle is changed.");
    await context.reload();
  });
  const cancelMoves = () => run(async () => {
    const { cancelled, refused } = await post("moves/cancel", { moves: ending.map((each) => [each.topic, each.partition]), confirm: wish.confirm });
    ending = null;
    if (refused.length) throw new Problem(200, "Refused", refused.join("; "));
    say(`${number(cancelled.length)} ${cancelled.length === 1 ? "move is" : "moves are"} cancelled.`);
    await context.reload();
  });
  const throttleAll = () => run(async () => {
    await post("moves/throttle", { throttle: wish.all, confirm: wish.confirm });
    say("The throttle is set.");
    await context.reload();
  });
  const input = (name, title, placeholder) => h("label", null, title, h("input", { type: "text", value: wish[name], placeholder, maxlength: "1000", autocomplete: "off", spellcheck: "false", oninput: (event) => { wish[name] = event.target.value; } }));
  const typed = () => (context.session.asks_name ? input("confirm", `Type ${context.session.name} to agree`, "") : null);
  const goesBack = (each) => h("li", { key: nameOf(each) }, `${nameOf(each)} stays on ${each.replicas.filter((broker) => !each.adding.includes(broker)).join(", ")}`);
  // What is done with moves, whoever began them.
  const underWay = (throttled) => h("section", { class: "panel", "aria-label": "All moves" },
    h("form", { class: "fields", onsubmit: (event) => { event.preventDefault(); throttleAll(); } },
      h("label", null, "Rate, bytes a second for each broker", h("input", { type: "text", placeholder: "50MB", maxlength: "30", required: true, autocomplete: "off", value: wish.all, oninput: (event) => { wish.all = event.target.value; } })),
      ending ? null : typed(),
      h("div", { class: "buttons" },
        h("button", { type: "submit", disabled: busy }, "Throttle all"),
        throttled ? h("button", { type: "button", disabled: busy || throttled.stopping, onclick: () => run(async () => { await post("jobs/stop", { id: throttled.id }); await context.reload(); }) }, "Remove the throttle") : null,
        h("button", { type: "button", disabled: busy, onclick: () => { ending = found.items.slice(); context.draw(); } }, "Cancel all …"))));
  const agreed = () => h("section", { class: "panel", role: "group", "aria-label": "Cancel moves" },
    h("p", null, ending.length === 1 ? "This move would be cancelled:" : `These ${number(ending.length)} moves would be cancelled:`),
    h("ul", null, ending.slice(0, 20).map(goesBack)),
    ending.length > 20 ? h("p", { class: "quiet" }, `${number(ending.length - 20)} more are not shown.`) : null,
    h("p", { class: "quiet" }, "The brokers delete what they copied. If `ottla plan run` began these moves, it does not begin them again."),
    h("div", { class: "fields" }, typed(),
      h("div", { class: "buttons" },
        h("button", { type: "button", class: "main danger", disabled: busy, onclick: cancelMoves }, ending.length === 1 ? "Cancel 1 move" : `Cancel ${number(ending.length)} moves`),
        h("button", { type: "button", onclick: () => { ending = null; context.draw(); } }, "Keep them"))));
  const jobRow = (job) => h("div", { class: "job", key: job.id },
    h("p", null, h("strong", null, job.subject), " ", h("span", { class: `badge ${job.state === "failed" ? "sev-error" : ""}` }, job.stopping ? "cancelling" : job.state),
      job.progress.moves !== undefined ? ` ${number(job.progress.done)} of ${number(job.progress.moves)} partitions, ${bytes(job.progress.copied)} of ${bytes(job.progress.bytes)}` : "",
      job.progress.bytes_per_second ? `, ${bytes(job.progress.bytes_per_second)}/s` : "", job.progress.left_s !== null && job.progress.left_s !== undefined ? `, ${duration(job.progress.left_s * 1000)} left` : "", " ",
      job.progress.throttle ? `, at most ${bytes(job.progress.throttle)}/s a broker` : "", " ",
      job.state === "running" && !job.stopping && context.session.may_write ? h("span", { class: "buttons" },
        job.progress.throttle ? h("form", { class: "buttons", onsubmit: (event) => { event.preventDefault(); changeThrottle(job); } },
          h("input", { type: "text", class: "short", "aria-label": `Throttle of ${job.subject}`, placeholder: "100MB", maxlength: "30", required: true, autocomplete: "off", oninput: (event) => { wish.rate = event.target.value; } }),
          h("button", { type: "submit", class: "small", disabled: busy }, "Throttle")) : null,
        h("button", { type: "button", class: "small", onclick: () => run(async () => { await post("jobs/stop", { id: job.id }); await context.reload(); }) }, "Cancel")) : null),
    bar(job.progress.bytes ? job.progress.copied / job.progress.bytes : job.progress.moves ? job.progress.done / job.progress.moves : job.state === "done" ? 1 : 0, "progress"),
    (job.progress.waits || []).map((each) => h("p", { class: "quiet" }, visible(each))),
    job.problem ? h("p", { class: "bad" }, visible(job.problem)) : null);
  return {
    title: "Moves",
    every: Math.min(2000, context.session.every_ms),
    state: () => found && found.state,
    load: async (signal) => { found = await get("moves", {}, signal); },
    view: () => {
      const most = plan ? Math.max(1, ...plan.brokers.flatMap((each) => [each.bytes_before, each.bytes_after])) : 1;
      const plans = found ? found.jobs.filter((each) => each.kind === "plan") : [];
      const throttled = found ? found.jobs.find((each) => each.kind === "throttle" && each.state === "running") : null;
      const failed = found ? found.jobs.find((each) => each.kind === "throttle") : null;
      return [
        h("h1", null, "Moves"),
        plans.length ? [h("h2", null, "Plans carried out here"), plans.map(jobRow)] : null,
        h("h2", null, "Under way"),
        found ? table({
          caption: "Moves under way", items: found.items, key: (each) => `${each.topic}-${each.partition}`, empty: "Nothing moves.",
          columns: [
            { title: "Partition", class: "name", cell: (each) => `${each.topic}-${each.partition}` },
            { title: "From", cell: (each) => each.removing.join(", ") || "–" },
            { title: "To", cell: (each) => each.adding.join(", ") || "–" },
            { title: "Copied", cell: (each) => h("span", { class: "barred" }, bar(each.bytes ? each.copied / each.bytes : 0, "copied"), `${bytes(each.copied)} of ${bytes(each.bytes)}`) },
            { title: "Waits for", class: "wrap", cell: (each) => each.why ? visible(each.why) : "–" },
            { title: "Rate", right: true, cell: (each) => each.bytes_per_second === null ? "–" : `${bytes(each.bytes_per_second)}/s` },
            ...(context.session.may_write ? [{ title: "Do", cell: (each) => h("button", { type: "button", class: "small", disabled: busy, "aria-label": `Cancel ${nameOf(each)} …`, onclick: () => { ending = [each]; context.draw(); } }, "Cancel …") }] : [])],
        }) : h("p", { class: "quiet" }, "Asking …"),
        throttled ? h("p", { role: "status" }, `All moves are throttled to ${bytes(throttled.progress.throttle)}/s for each broker until they are over.`) : null,
        failed && failed.problem ? h("p", { class: "bad" }, visible(failed.problem)) : null,
        found && found.items.length && context.session.may_write ? underWay(throttled) : null,
        ending ? agreed() : null,
        h("section", { class: "panel", "aria-label": "Plan" }, h("h2", null, "Plan"),
          h("p", { class: "quiet" }, "A plan moves nothing. It shows the brokers before and after."),
          h("form", { class: "fields", onsubmit: (event) => { event.preventDefault(); make(); } },
            h("label", null, "What", h("select", { value: wish.kind, onchange: (event) => { wish.kind = event.target.value; plan = null; context.draw(); } }, KINDS.map(([id, title]) => h("option", { value: id }, title)))),
            !asksBrokers() ? null : input("brokers", "Brokers", wish.kind === "dirs" ? "all" : "4,5"),
            input("topics", "Only topics", "all, or orders*"),
            h("div", { class: "buttons" }, h("button", { type: "submit", disabled: busy }, busy ? "Planning …" : "Plan"))),
          problem ? h("div", { class: "problem", role: "alert" }, problem) : null,
          plan ? [
            h("p", { role: "status" }, plan.summary),
            plan.notes.map((each) => h("p", { class: "quiet" }, visible(each))),
            table({
              caption: "Brokers before and after", items: plan.brokers, key: (each) => each.broker,
              columns: [
                { title: "Broker", right: true, cell: (each) => String(each.broker) },
                { title: "Rack", cell: (each) => each.rack === null ? "–" : visible(each.rack) },
                { title: "Before", cell: (each) => h("span", { class: "barred" }, bar(each.bytes_before / most, "before"), bytes(each.bytes_before)) },
                { title: "After", cell: (each) => h("span", { class: "barred" }, bar(each.bytes_after / most, "after"), bytes(each.bytes_after)) },
                { title: "Replicas", right: true, cell: (each) => `${number(each.replicas_before)} → ${number(each.replicas_after)}` },
                { title: "Leads", right: true, cell: (each) => `${number(each.leaders_before)} → ${number(each.leaders_after)}` }],
            }),
            table({
              caption: "Moves of the plan", items: plan.items, key: (each) => `${each.topic}-${each.partition}`, empty: "Nothing has to move.",
              columns: [
                { title: "Partition", class: "name", cell: (each) => `${each.topic}-${each.partition}` },
                { title: "Bytes", right: true, cell: (each) => bytes(each.bytes) },
                { title: "Now", cell: (each) => each.old.join(", ") },
                { title: "Then", cell: (each) => each.new.join(", ") },
                { title: "Why", class: "wrap", cell: (each) => visible(each.why) }],
            }),
            plan.total > plan.items.length ? h("p", { class: "quiet" }, `${number(plan.total - plan.items.length)} more are not shown.`) : null,
            plan.plan && context.session.may_write ? h("div", { class: "fields" }, input("throttle", "Throttle, bytes a second", "50MB"), context.session.asks_name ? input("confirm", `Type ${context.session.name} to agree`, "") : null,
              h("div", { class: "buttons" }, h("button", { type: "button", disabled: busy, onclick: () => carryOut(true) }, "Only write the file"), h("button", { type: "button", class: "main danger", disabled: busy, onclick: () => carryOut(false) }, `Move ${bytes(plan.bytes_copied)}`))) : null,
            plan.plan && !context.session.may_write ? h("p", { class: "quiet" }, "This console only reads. As a command: ", copy(["ottla plan", wish.kind, ...(asksBrokers() && wish.brokers ? [quoted(wish.brokers)] : []), ...(wish.topics ? ["--topics", quoted(/[*?\/]/.test(wish.topics) ? wish.topics : `*${wish.topics}*`)] : []), "-o plan.json"].join(" "))) : null,
          ] : null,
          written ? h("div", { class: "done", role: "status" }, h("p", null, "The plan is in ", h("code", { class: "wrap" }, written.file), ". ", copy(written.command, "Copy the command that runs it"))) : null),
      ];
    },
  };
}

export function embeddedPage(context) {
  let found = null;
  let problem = null;
  let page = 0;
  let clock = null; // what the virtual clock said last
  const told = new Map(); // what was explained: partition → sentences
  const wish = { ms: "60000", delay: "200", fault: "{\"api\": \"Produce\", \"error\": \"NOT_LEADER_OR_FOLLOWER\", \"count\": 1}", a: "1", b: "2", node: "1", disk: "full" };
  const act = (body) => async () => {
    problem = null;
    try {
      const { answer } = await post("embedded", body());
      if (answer.now_ms !== undefined) clock = new Date(answer.now_ms).toISOString().replace("T", " ").replace("Z", "");
      found = await get("embedded", { page });
      say("Done.");
    }
    catch (error) { if (!(error instanceof Problem) && !(error instanceof SyntaxError)) throw error; problem = error.message; }
    context.draw();
  };
  const nameOf = (each) => `${each.topic}-${each.partition}`;
  // The sentences stand in the row: nothing above it moves.
  const explain = ({ topic, partition }) => async () => {
    const at = nameOf({ topic, partition });
    if (told.has(at)) told.delete(at);
    else try { told.set(at, (await get("embedded/explain", { topic, partition })).sentences); } catch (error) { if (!(error instanceof Problem)) throw error; problem = error.message; }
    context.draw();
  };
  const button = (title, body, kind = "small") => h("button", { type: "button", class: kind, disabled: !context.session.may_write, onclick: act(body) }, title);
  const field = (name, title, type = "text") => h("label", { class: name === "fault" ? "wide" : "" }, title, h("input", { type, value: wish[name], maxlength: "2000", autocomplete: "off", spellcheck: "false", oninput: (event) => { wish[name] = event.target.value; } }));
  const list = (items, empty) => items.length ? h("ul", null, items) : h("p", { class: "quiet" }, empty);
  return {
    title: "Embedded broker",
    every: 2000,
    load: async (signal) => { found = await get("embedded", { page }, signal); },
    view: () => [
      h("h1", null, "Embedded broker"),
      context.session.may_write ? null : h("p", { class: "quiet" }, "This console only reads: start it with --write to break things."),
      problem ? h("div", { class: "problem", role: "alert" }, problem) : null,
      found ? [
        h("h2", null, "Brokers"),
        table({
          caption: "Brokers", items: found.cluster.brokers, key: (each) => each.id,
          columns: [
            { title: "Id", cell: (each) => h("span", null, String(each.id), each.id === found.cluster.controller ? h("span", { class: "badge" }, "controller") : null) },
            { title: "Address", cell: (each) => each.address },
            { title: "State", cell: (each) => h("span", { class: each.state === "running" ? "good" : "bad" }, each.state, each.fenced ? ", fenced" : "") },
            { title: "Do", cell: (each) => h("span", { class: "buttons" }, ["kill", "stop", "start", "pause", "resume"].map((action) => button(action, () => ({ on: "brokers", action, node: each.id })))) }],
        }),
        h("div", { class: "beside four" },
          h("section", { class: "panel", "aria-label": "Faults" }, h("h2", null, "Faults"),
            list(found.faults.map((each) => h("li", { key: each.id }, h("code", { class: "wrap" }, JSON.stringify(each)), " ", button("remove", () => ({ on: "faults", action: "remove", node: each.id })))), "None."),
            h("div", { class: "fields" }, field("fault", "A fault as JSON"), h("div", { class: "buttons" }, button("Add", () => ({ on: "faults", body: JSON.parse(wish.fault) }), ""), button("Clear all", () => ({ on: "faults", action: "clear" }), "")))),
          h("section", { class: "panel", "aria-label": "Links" }, h("h2", null, "Links"),
            list(found.links.map((each) => h("li", null, each.node !== undefined ? `${each.node}: ${each.state}` : `${each.source} → ${each.target}: ${each.state}`)), "All are whole."),
            h("div", { class: "fields" }, field("a", "Broker"), field("b", "and broker"), field("delay", "Delay in ms"), h("div", { class: "buttons" }, button("Cut", () => ({ on: "links", action: "cut", body: { a: Number(wish.a), b: Number(wish.b) } }), ""), button("Slow", () => ({ on: "links", action: "slow", body: { a: Number(wish.a), b: Number(wish.b), delay_ms: Number(wish.delay) } }), ""), button("Heal all", () => ({ on: "links", action: "heal" }), "")))),
          h("section", { class: "panel", "aria-label": "Disks" }, h("h2", null, "Disks"),
            list(found.disks.map((each) => h("li", null, `broker ${each.broker}: ${each.kind} ${each.path}`)), "All are well."),
            h("div", { class: "fields" }, field("node", "Broker"), h("label", null, "Fault", h("select", { value: wish.disk, onchange: (event) => { wish.disk = event.target.value; } }, ["full", "fsync-error", "torn-write", "offline"].map((each) => h("option", { value: each }, each)))),
              h("div", { class: "buttons" }, button("Break", () => ({ on: "disks", action: wish.disk, body: { broker: Number(wish.node) } }), ""), button("Heal all", () => ({ on: "disks", action: "heal" }), "")))),
          h("section", { class: "panel", "aria-label": "Clock" }, h("h2", null, "Virtual clock"),
            clock ? h("p", { role: "status" }, `It is ${clock} now.`) : null,
            h("div", { class: "fields" }, field("ms", "Milliseconds"), h("div", { class: "buttons" }, button("Advance", () => ({ on: "clock", action: "advance", body: { ms: Number(wish.ms) } }), ""))))),
        h("h2", null, "Partitions"),
        table({
          caption: "Partitions", items: found.partitions.items, key: nameOf, empty: "There are no topics.",
          columns: [
            { title: "Partition", class: "name", cell: nameOf },
            { title: "Leader", right: true, cell: (each) => each.leader === null || each.leader < 0 ? h("span", { class: "bad" }, "none") : String(each.leader) },
            { title: "Epoch", right: true, cell: (each) => String(each.leader_epoch) },
            { title: "Replicas", cell: (each) => each.replicas.join(", ") },
            { title: "In sync", cell: (each) => h("span", { class: each.isr.length < each.replicas.length ? "bad" : "" }, each.isr.join(", ")) },
            { title: "High watermark", right: true, cell: (each) => `${number(each.high_watermark)} of ${number(each.log_end_offset)}` },
            { title: "Why", class: "wrap", cell: (each) => [
              h("button", { type: "button", class: "small", "aria-expanded": String(told.has(nameOf(each))), "aria-label": `Explain ${nameOf(each)}`, onclick: explain(each) }, "Explain"),
              told.has(nameOf(each)) ? h("span", { class: "sentences", role: "status" }, told.get(nameOf(each)).map((sentence) => h("span", null, visible(sentence)))) : null] }],
        }),
        pager(found.partitions, (next) => { page = next; context.reload(); }),
      ] : h("p", { class: "quiet" }, "Asking the control API …"),
    ],
  };
}
