// Dead letters: by cause, one beside the record it was, and a redrive that is counted before it is done.

import { bar, copy, get, h, number, post, Problem, say, table, visible } from "./ui.js";
import { crumbs } from "./pages-topics.js";
import { detail } from "./records.js";

export function lettersPage(context) {
  let found = null;
  return {
    title: "Dead letters",
    every: Math.max(5000, context.session.every_ms),
    state: () => found && found.asked,
    load: async (signal) => { found = await get("letters/topics", {}, signal); },
    view: () => [
      h("h1", null, "Dead letters"),
      found ? table({
        caption: "Dead letter topics", items: found.items, key: (each) => each.topic, empty: "No topic is named as dead letter topics are.",
        columns: [
          { title: "Topic", class: "name", cell: (each) => context.link("/letters/topic", { name: each.topic }, each.topic) },
          { title: "Partitions", right: true, cell: (each) => number(each.partitions) },
          { title: "Letters", right: true, cell: (each) => number(each.letters) },
          { title: "Newest", cell: (each) => each.newest ? each.newest.replace("T", " ").replace("Z", "") : "–" }],
      }) : h("p", { class: "quiet" }, "Looking for dead letters …"),
    ],
  };
}

export function letterTopicPage(context) {
  const name = context.params.get("name") || "";
  const chosen = { kind: context.params.get("kind") || "", origin: context.params.get("origin") || "", error: context.params.get("error") || "", group: context.params.get("group") || "" };
  let found = null;
  const opened = new Map();
  const redrive = redrivePart(context, name, chosen);
  const choose = (changes) => { Object.assign(chosen, changes); context.remember({ name, ...chosen }); redrive.forget(); context.reload(); };
  const toggle = async (letter) => {
    if (opened.has(letter.at)) opened.delete(letter.at);
    else {
      const asked = { waits: true }; // as of records: who closes it before the answer comes, closed it
      opened.set(letter.at, asked);
      context.draw();
      const [partition, offset] = letter.at.split(":");
      let whole;
      try { whole = await get("letter", { name, partition, offset }); }
      catch (error) { if (!(error instanceof Problem)) throw error; whole = { problem: error.message }; }
      if (opened.get(letter.at) !== asked) return;
      opened.set(letter.at, whole);
    }
    context.draw();
  };
  return {
    title: name,
    load: async (signal) => { found = await get("letters", { name, ...chosen }, signal); await redrive.look(signal); },
    stop: () => redrive.stop(),
    view: () => [
      crumbs(context, context.link("/letters", {}, "Dead letters"), " › "),
      h("div", { class: "head" }, h("h1", { class: "name" }, name), h("div", { class: "tools" }, context.link("/topic", { name }, "The topic"), h("button", { type: "button", onclick: context.reload }, "Again"))),
      found ? [
        h("p", { class: "quiet", role: "status" }, `${number(found.letters)} letters${found.scanned < found.total ? `, of the first ${number(found.scanned)} of ${number(found.total)} records` : ""}${found.others ? `; ${number(found.others)} records are no dead letters` : ""}`,
          Object.values(chosen).some(Boolean) ? [" · ", h("button", { type: "button", class: "small", onclick: () => choose({ kind: "", origin: "", error: "", group: "" }) }, "All causes")] : null),
        h("h2", null, "By cause"),
        table({
          caption: "Causes", items: found.items, key: (each) => `${each.origin} ${each.kind} ${each.error}`, empty: "No letters.",
          columns: [
            { title: "Letters", right: true, cell: (each) => number(each.count) },
            { title: "", cell: (each) => bar(each.count / Math.max(1, found.letters), `${number(each.count)} of ${number(found.letters)}`) },
            { title: "From", class: "name", cell: (each) => visible(each.origin) },
            { title: "Kind", cell: (each) => visible(each.kind) },
            { title: "Error", class: "wrap", cell: (each) => visible(each.error) || "–" },
            { title: "", cell: (each) => h("button", { type: "button", class: "small", onclick: () => choose({ origin: each.origin === "?" ? "" : each.origin, kind: ["malformed", "invalid", "failed", "expired"].includes(each.kind) ? each.kind : "", error: each.error }) }, "Only these") }],
        }),
        redrive.view(found),
        h("h2", null, "Newest"),
        found.newest.length ? h("ol", { class: "records", "aria-label": "Dead letters" }, found.newest.map((letter) => h("li", { key: letter.at },
          h("button", { type: "button", class: "record", "aria-expanded": String(opened.has(letter.at)), onclick: () => toggle(letter) },
            h("span", { class: "at" }, letter.at), h("span", { class: "time" }, letter.when ? letter.when.replace("T", " ").replace("Z", "") : "–"), h("span", { class: "key" }, visible(letter.came_from)), h("span", { class: "value" }, visible(letter.message) || h("i", null, "no message"))),
          opened.has(letter.at) ? h("div", { class: "opened" }, !opened.get(letter.at).waits ? letterDetail(opened.get(letter.at), name) : h("p", { class: "quiet" }, "Reading …")) : null))) : h("p", { class: "quiet" }, "None."),
      ] : h("p", { class: "quiet" }, "Reading dead letters …"),
    ],
  };
}

function letterDetail(letter, topic) {
  if (letter.problem) return h("div", { class: "problem", role: "alert" }, letter.problem);
  const why = letter.why;
  const fact = (title, value) => (value === null || value === undefined ? null : [h("dt", null, title), h("dd", null, visible(value))]);
  return [
    h("h3", null, "Why"),
    h("dl", { class: "facts" }, fact("Error", why.error), fact("Message", why.message), fact("Kind", why.kind), fact("Attempts", why.attempts), fact("Group", why.group), fact("First failure", why.first_failure), fact("Dead-lettered", why.dead_lettered), fact("Headers of", why.family), fact("Not in it", why.not_in_it)),
    why.stack_trace ? h("details", null, h("summary", null, "Stack trace"), h("pre", { tabindex: "0" }, visible(why.stack_trace))) : null,
    h("h3", null, "Retries on its way"),
    letter.retries.length ? table({
      caption: "Retries on its way", items: letter.retries, key: (each) => `${each.topic} ${each.offset}`,
      columns: [
        { title: "Waited in", class: "name", cell: (each) => `${each.topic}-${each.partition}@${each.offset}` },
        { title: "Since", cell: (each) => each.written ? each.written.replace("T", " ").replace("Z", "") : "–" },
        { title: "Not before", cell: (each) => each.not_before ? each.not_before.replace("T", " ").replace("Z", "") : "its turn" },
        { title: "Failed before", right: true, cell: (each) => number(each.attempts) },
        { title: "Error", class: "wrap", cell: (each) => [visible(each.error || "–"), each.message ? `: ${visible(each.message)}` : ""] }],
    }) : null,
    letter.retries_note ? h("p", { class: "quiet" }, visible(letter.retries_note)) : null,
    h("div", { class: "beside" },
      h("section", { "aria-label": "The letter" }, h("h3", null, "The letter"), detail(letter.letter, topic)),
      h("section", { "aria-label": "The record it was" }, h("h3", null, `The record it was: ${visible(why.came_from)}`), letter.origin ? detail(letter.origin, letter.origin.topic) : h("p", { class: "quiet" }, letter.no_origin))),
  ];
}

function redrivePart(context, name, chosen) {
  let plan = null;
  let problem = null;
  let busy = false;
  let job = null;
  let timer = null;
  const wish = { to: "", per_second: "50", confirm: "" };
  const run = async (act) => {
    busy = true;
    problem = null;
    context.draw();
    try { await act(); } catch (error) { if (!(error instanceof Problem)) throw error; problem = error.message; }
    busy = false;
    context.draw();
  };
  const count = () => run(async () => { plan = await get("letters/redrive", { name, ...chosen, to: wish.to }); });
  const begin = () => run(async () => {
    const given = plan.plan;
    plan = null;
    job = await post("letters/redrive", { plan: given, per_second: Number(wish.per_second) || null, confirm: wish.confirm });
    follow();
  });
  const look = async (signal) => { job = (await get("jobs", {}, signal)).items.find((each) => each.kind === "redrive" && each.subject === name) || job; };
  const follow = () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      await look();
      if (job && job.state === "running") follow(); else { say("The redrive has ended."); await context.reload(); }
      context.draw();
    }, 700);
  };
  const input = (field, title, placeholder) => h("label", null, title, h("input", { type: "text", value: wish[field], placeholder, maxlength: "300", autocomplete: "off", spellcheck: "false", oninput: (event) => { wish[field] = event.target.value; plan = field === "to" ? null : plan; } }));
  return {
    isRunning: () => Boolean(job && job.state === "running"),
    forget: () => { plan = null; },
    stop: () => clearTimeout(timer),
    look: async (signal) => { await look(signal); if (job && job.state === "running") follow(); },
    view: (found) => h("section", { class: "panel", "aria-label": "Redrive" },
      h("h2", null, "Redrive"),
      h("form", { class: "fields", onsubmit: (event) => { event.preventDefault(); count(); } },
        input("to", "To", "its origin"), input("per_second", "At most a second", "50"),
        h("div", { class: "buttons" }, h("button", { type: "submit", disabled: busy || !found.letters }, busy ? "Counting …" : "Dry run"))),
      problem ? h("div", { class: "problem", role: "alert" }, problem) : null,
      plan ? [
        h("p", { role: "status" }, plan.redriven ? `${number(plan.redriven)} would be sent: ` : "None would be sent: all were sent before, or are filtered out.", plan.to.map((each) => h("span", { class: "badge" }, `${number(each.letters)} to ${visible(each.topic)}`)),
          plan.filtered ? ` ${number(plan.filtered)} not meant.` : "", plan.homeless ? ` ${number(plan.homeless)} without an origin.` : "", plan.refused ? ` ${number(plan.refused)} refused: ${plan.first_refusal}.` : ""),
        plan.plan ? context.session.may_write ? h("div", { class: "buttons" }, context.session.asks_name ? input("confirm", `Type ${context.session.name} to agree`, "") : null,
          h("button", { type: "button", class: "main danger", disabled: busy, onclick: begin }, `Redrive ${number(plan.redriven)}`))
          : h("p", { class: "quiet" }, "This console only reads. As a command: ", copy(`ottla dlq redrive ${name} --dry-run`)) : null,
      ] : null,
      job ? h("div", { class: "job", role: "status" },
        bar(job.progress.total ? (job.progress.sent || 0) / job.progress.total : 0, "progress"),
        h("p", null, `${({ running: job.stopping ? "Stopping" : "Sending", done: "Done", failed: "Failed", stopped: "Stopped" })[job.state]}: ${number(job.progress.sent || 0)} of ${number(job.progress.total || 0)} sent`, job.progress.refused ? `, ${number(job.progress.refused)} refused` : "", job.problem ? h("span", { class: "bad" }, ` ${job.problem}`) : null, " ",
          job.state === "running" && context.session.may_write ? h("button", { type: "button", class: "small", onclick: () => run(async () => { job = await post("jobs/stop", { id: job.id }); }) }, "Stop") : null)) : null),
  };
}
