// Groups: their lag, and a reset that is shown before it is done and can be undone.

import { copy, duration, get, h, number, pager, plot, post, Problem, quoted, say, table, visible } from "./ui.js";
import { crumbs, listing } from "./pages-topics.js";

// Unknown is not 0, and a commit beyond the log's end is no lag.
const lagOf = (group) => group.lag === null && group.lag_at_least !== null
  ? h("span", { class: "bad", title: `at least ${number(group.lag_at_least)}: of a partition it is not known` }, "unknown") : number(group.lag);
const lagOfPartition = (each) => each.problem !== null ? h("span", { class: "bad", title: each.problem }, "unknown")
  : each.lag < 0 ? h("span", { class: "bad", title: "the committed offset is beyond the end of the log" }, number(each.lag)) : number(each.lag);

const named = (name) => visible(name) || "(no name)";

export function groupsPage(context) {
  const chosen = { match: context.params.get("match") || "", sort: context.params.get("sort") || "name", reverse: context.params.get("reverse") === "true", page: Number(context.params.get("page")) || 0 };
  let found = null;
  let typing = null;
  const list = listing("groups", "group", chosen);
  const change = (changes) => { Object.assign(chosen, changes); context.remember(chosen); context.reload(); };
  return {
    title: "Groups",
    every: Math.max(5000, context.session.every_ms),
    state: () => found && found.asked,
    stop: () => clearTimeout(typing),
    load: async (signal) => { found = await list(signal); },
    view: () => [
      h("div", { class: "head" }, h("h1", null, "Groups"), h("div", { class: "tools" },
        h("input", { type: "search", value: chosen.match, placeholder: "Part of a name, billing*, or /regex/", "aria-label": "Filter groups", maxlength: "300",
          oninput: (event) => { const match = event.target.value; clearTimeout(typing); typing = setTimeout(() => change({ match, page: 0 }), 200); } }))),
      found ? [table({
        caption: "Groups", items: found.items, key: (each) => each.group, empty: chosen.match ? "No group matches." : "There are no groups.",
        sort: chosen.sort, reverse: chosen.reverse,
        onsort: (sort) => change({ sort, reverse: chosen.sort === sort ? !chosen.reverse : false, page: 0 }),
        columns: [
          { title: "Group", sort: "name", class: "name", cell: (each) => context.link("/group", { name: each.group }, named(each.group)) },
          { title: "State", sort: "state", cell: (each) => each.state },
          { title: "Type", sort: "type", cell: (each) => each.type },
          { title: "Lag", sort: "lag", right: true, cell: lagOf },
          { title: "Lost", right: true, cell: (each) => each.lost ? h("span", { class: "bad" }, number(each.lost)) : number(each.lost) },
          { title: "Coordinator", right: true, cell: (each) => String(each.coordinator) }],
      }), pager(found, (page) => change({ page }))] : h("p", { class: "quiet" }, "Asking for groups …"),
    ],
  };
}

export function groupPage(context) {
  const name = context.params.get("name") || "";
  const history = []; // of lag and age, while the page is open
  let found = null;
  const reset = resetPart(context, name);
  return {
    title: name,
    every: Math.max(3000, context.session.every_ms),
    state: () => found && found.asked,
    load: async (signal) => {
      found = await get("group", { name }, signal);
      history.push({ at: Date.now(), lag: found.lag_at_least, age: Math.max(0, ...found.partitions.map((each) => each.age_ms ?? 0)) });
      if (history.length > 120) history.shift();
    },
    view: () => {
      const oldest = found ? Math.max(-1, ...found.partitions.map((each) => each.age_ms ?? -1)) : -1;
      return [
        crumbs(context, context.link("/groups", {}, "Groups"), " › "),
        h("div", { class: "head" }, h("h1", { class: "name" }, named(name)), h("div", { class: "tools" }, copy(name, "Copy name"), found ? reset.button(found) : null)),
        found ? [
          h("dl", { class: "figures" },
            fig("State", h("span", { class: found.state === "Stable" ? "good" : "" }, found.state), found.type),
            fig("Members", number(found.members), found.idle_members ? h("span", { class: "bad" }, `${found.idle_members} idle`) : null),
            fig("Lag", lagOf(found)),
            fig("Oldest unread", oldest < 0 ? "–" : duration(oldest)),
            fig("Lost to retention", found.lost ? h("span", { class: "bad" }, number(found.lost)) : "0"),
            fig("Assignor", found.assignor || "–")),
          reset.view(found),
          h("div", { class: "plots" },
            plot("Lag in records", history.map((each) => [each.at, each.lag]), number),
            plot("How long the oldest waits", history.map((each) => [each.at, each.age]), duration)),
          h("h2", null, "Partitions"),
          table({
            caption: "Partitions", items: found.partitions, key: (each) => `${each.topic} ${each.partition}`, empty: "Nothing is committed.",
            columns: [
              { title: "Topic", class: "name", cell: (each) => context.link("/topic", { name: each.topic }, each.topic) },
              { title: "Partition", right: true, cell: (each) => String(each.partition) },
              { title: "Committed", right: true, cell: (each) => each.committed === null ? h("i", null, "none") : context.link("/topic", { name: each.topic, from: `${each.partition}:${each.committed}`, limit: 20 }, number(each.committed)) },
              { title: "End", right: true, cell: (each) => number(each.end_offset) },
              { title: "Lag", right: true, cell: lagOfPartition },
              { title: "Waits", right: true, cell: (each) => duration(each.age_ms) },
              { title: "Lost", right: true, cell: (each) => each.lost ? h("span", { class: "bad" }, number(each.lost)) : "0" },
              { title: "Held at", right: true, cell: (each) => each.held_at === null ? "–" : h("span", { class: "bad", title: "an open transaction holds readers of read_committed here" }, number(each.held_at)) },
              { title: "Client", cell: (each) => each.client === null ? "–" : visible(each.client) }],
          }),
          found.leases ? [h("h2", null, "Leases"), leasesOf(found.leases)] : null,
          h("h2", null, "Members"),
          table({
            caption: "Members", items: found.member_list, key: (each) => each.member, empty: "No members.",
            columns: [
              { title: "Client", class: "name", cell: (each) => visible(each.client) },
              { title: "Host", cell: (each) => visible(each.host) },
              { title: "Instance", cell: (each) => each.instance === null ? "–" : visible(each.instance) },
              { title: "Has", class: "wrap", cell: (each) => each.partitions.length ? each.partitions.join(", ") : h("span", { class: "bad" }, "nothing: idle") }],
          }),
        ] : h("p", { class: "quiet" }, "Asking for the group …"),
      ];
    },
  };
}

const leasesOf = (leases) => table({
  caption: "Leases", items: leases, key: (each) => `${each.topic} ${each.partition}`, empty: "No member has fetched.",
  columns: [
    { title: "Topic", class: "name", cell: (each) => visible(each.topic) },
    { title: "Partition", right: true, cell: (each) => String(each.partition) },
    { title: "In flight", right: true, cell: (each) => h("span", { class: each.in_flight >= each.most_in_flight ? "bad" : "" }, `${number(each.in_flight)} of ${number(each.most_in_flight)}`) },
    { title: "Leased", right: true, cell: (each) => number(each.leased) },
    { title: "Available again", right: true, cell: (each) => number(each.available) },
    { title: "Oldest lease", right: true, cell: (each) => each.lowest_lease === null ? "–" : h("span", { title: "the lowest offset that is leased" }, `offset ${number(each.lowest_lease)}`) },
    { title: "Next lock ends", right: true, cell: (each) => duration(each.next_lock_ends_in_ms) },
    { title: "Highest delivery", right: true, cell: (each) => h("span", { class: each.highest_delivery_count >= each.delivery_limit ? "bad" : "" }, `${each.highest_delivery_count} of ${each.delivery_limit}`) },
    { title: "Members with leases", right: true, cell: (each) => number(each.members.length) }],
});

const fig = (title, value, more) => h("div", { class: "figure" }, h("dt", null, title), h("dd", null, value, more ? h("small", null, more) : null));

function resetPart(context, group) {
  let open = false;
  let plan = null;
  let problem = null;
  let done = null;
  let busy = false;
  const wish = { to: "-2h", shift: "", topics: "", confirm: "" };

  async function run(act) {
    busy = true;
    problem = null;
    context.draw();
    try { await act(); } catch (error) { if (!(error instanceof Problem)) throw error; problem = error.message; }
    busy = false;
    context.draw();
  }
  const topicsOf = () => wish.topics.split(/\s+/).filter(Boolean);
  const preview = () => run(async () => {
    plan = null;
    done = null;
    const topics = topicsOf();
    plan = await get("group/reset", wish.shift ? { group, shift: wish.shift, topics } : { group, to: wish.to, topics });
  });
  const apply = () => run(async () => {
    const number_ = plan.plan;
    plan = { ...plan, plan: null };
    done = await post("group/reset", { plan: number_, confirm: wish.confirm });
    plan = null;
    say("The offsets are set.");
    await context.reload();
  });
  const undo = () => run(async () => { plan = await post("group/restore", { content: done.undo }); done = null; });

  const input = (name, title, placeholder) => h("label", null, title, h("input", { type: "text", value: wish[name], placeholder, maxlength: "2000", spellcheck: "false", autocomplete: "off", oninput: (event) => { wish[name] = event.target.value; } }));

  return {
    button: () => h("button", { type: "button", "aria-expanded": String(open), onclick: () => { open = !open; context.draw(); } }, "Reset …"),
    view: () => !open ? null : h("section", { class: "panel", "aria-label": "Reset" },
      h("h2", null, "Reset"),
      h("p", { class: "quiet" }, "Looks first: nothing changes before you agree to the table."),
      h("form", { class: "fields", onsubmit: (event) => { event.preventDefault(); preview(); } },
        input("to", "To", "earliest, latest, -2h, 2026-11-22T10:00"), input("shift", "or shift by records", "-1"), input("topics", "Only topics", "orders payments:0,2"),
        h("div", { class: "buttons" }, h("button", { type: "submit", disabled: busy }, "Show what would change"))),
      problem ? h("div", { class: "problem", role: "alert" }, problem) : null,
      plan ? [
        table({
          caption: "What would change", items: plan.items, key: (each) => `${each.topic} ${each.partition}`, empty: "Nothing to change.",
          columns: [
            { title: "Topic", class: "name", cell: (each) => each.topic },
            { title: "Partition", right: true, cell: (each) => String(each.partition) },
            { title: "Committed", right: true, cell: (each) => each.committed === null ? h("i", null, "none") : number(each.committed) },
            { title: "New", right: true, cell: (each) => each.new === null ? h("i", null, "none") : number(each.new) },
            { title: "More to read", right: true, cell: (each) => each.records === null ? "–" : `${each.records > 0 ? "+" : ""}${number(each.records)}` },
            { title: "Note", cell: (each) => each.note || "" }],
        }),
        plan.members.length ? h("div", { class: "problem" }, `Stop its members first: ${plan.members.slice(0, 5).map(visible).join(", ")}`) : null,
        !context.session.may_write ? h("p", { class: "quiet" }, "This console only reads. As a command: ", copy(["ottla groups reset", quoted(group), wish.shift ? `--shift=${quoted(wish.shift)}` : `--to=${quoted(wish.to)}`, ...topicsOf().map((each) => `--topic ${quoted(each)}`)].join(" "))) :
          plan.plan && !plan.members.length ? h("div", { class: "buttons" },
            context.session.asks_name ? input("confirm", `Type ${context.session.name} to agree`, context.session.name) : null,
            h("button", { type: "button", class: "main danger", disabled: busy, onclick: apply }, `Set ${number(plan.changes)} offsets`)) : null,
      ] : null,
      done ? h("div", { class: "done", role: "status" }, h("p", null, `${number(done.changed)} offsets are set. What was committed before is in `, h("code", { class: "wrap" }, done.undo_file), "."),
        h("div", { class: "buttons" }, h("button", { type: "button", disabled: busy, onclick: undo }, "Undo …"), copy(done.command, "Copy the command that undoes it"))) : null),
  };
}
