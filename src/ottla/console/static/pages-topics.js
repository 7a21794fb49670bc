// The cluster, its topics, and one topic with its records.

import { bar, bytes, copy, duration, get, h, number, pager, spark, table, visible } from "./ui.js";
import { changePart } from "./changes.js";
import { recordsPart } from "./records.js";

const figure = (title, value, more) => h("div", { class: "figure" }, h("dt", null, title), h("dd", null, value, more ? h("small", null, more) : null));
const notRead = (state) => state && state.not_read && state.not_read.length
  ? h("details", { class: "caution" }, h("summary", null, "Some facts could not be read"), h("ul", null, state.not_read.map((each) => h("li", null, each)))) : null;

export const crumbs = (context, ...parts) => h("nav", { class: "crumbs", "aria-label": "Breadcrumb" }, parts);

export function clusterPage(context) {
  let found = null;
  return {
    title: "Cluster",
    every: context.session.every_ms,
    state: () => found && found.state,
    load: async (signal) => { found = await get("cluster", {}, signal); },
    view: () => {
      if (!found) return h("p", { class: "quiet" }, "Reading the cluster …");
      const all = found.cluster;
      const rate = found.brokers.reduce((sum, each) => sum + (each.bytes_per_second || 0), 0);
      const length = Math.max(0, ...found.brokers.map((each) => each.history.length));
      const total = Array.from({ length }, (_, at) => found.brokers.reduce((sum, each) => sum + (each.history[at] || 0), 0));
      return [
        h("h1", null, "Cluster"),
        h("dl", { class: "figures" },
          figure("Brokers", number(all.brokers), all.fenced_brokers.length ? `${all.fenced_brokers.length} fenced` : null),
          figure("Topics", context.link("/topics", {}, number(all.topics))),
          figure("Partitions", number(all.partitions), `${number(all.replicas)} replicas`),
          figure("Bytes", bytes(all.bytes), "all replicas"),
          figure("Written", found.brokers.some((each) => each.bytes_per_second !== null) ? `${bytes(rate)}/s` : "…", spark(total, `bytes written per second, now ${bytes(rate)}`)),
          figure("Problems", all.problems ? h("span", { class: "bad" }, all.problems) : h("span", { class: "good" }, "none")),
        ),
        notRead(found.state),
        h("h2", null, "Brokers"),
        table({
          caption: "Brokers", items: found.brokers, key: (each) => each.broker,
          columns: [
            { title: "Id", cell: (each) => h("span", null, String(each.broker), each.controller ? h("span", { class: "badge", title: "the active controller" }, "controller") : null) },
            { title: "Address", cell: (each) => visible(each.address) },
            { title: "Rack", cell: (each) => each.rack === null ? "–" : visible(each.rack) },
            { title: "State", cell: (each) => h("span", { class: each.state === "ok" ? "good" : "bad" }, each.state) },
            { title: "Leads", right: true, cell: (each) => number(each.leaders) },
            { title: "Replicas", right: true, cell: (each) => number(each.replicas) },
            { title: "Not in sync", right: true, cell: (each) => each.behind ? h("span", { class: "bad" }, number(each.behind)) : "0" },
            { title: "Bytes", right: true, cell: (each) => bytes(each.bytes) },
            { title: "Written", right: true, cell: (each) => each.bytes_per_second === null ? "…" : `${bytes(each.bytes_per_second)}/s` },
            { title: "", cell: (each) => spark(each.history, `bytes written per second on broker ${each.broker}`, { from: Math.max(1, ...found.brokers.flatMap((other) => other.history)) }) },
          ],
        }),
        h("h2", null, "Disks"),
        table({
          caption: "Log directories", items: found.disks, key: (each) => `${each.broker} ${each.path}`, empty: "No broker returned a log directory.",
          columns: [
            { title: "Broker", right: true, cell: (each) => String(each.broker) },
            { title: "Directory", class: "wrap", cell: (each) => visible(each.path) },
            { title: "Replicas", right: true, cell: (each) => number(each.replicas) },
            { title: "Bytes", right: true, cell: (each) => bytes(each.bytes) },
            { title: "Disk used", cell: (each) => {
              if (each.total_bytes === null || each.total_bytes <= 0) return "–";
              const share = 1 - each.usable_bytes / each.total_bytes;
              const text = `${(share * 100).toFixed(0)} %`;
              return h("span", { class: "barred" }, bar(share, `${text} used`, share > 0.85 ? "bar-bad" : ""), text);
            } },
            { title: "Free", right: true, cell: (each) => bytes(each.usable_bytes) },
            { title: "Full in", right: true, cell: (each) => each.full_in_ms ? h("span", { class: each.full_in_ms < 86400000 ? "bad" : "" }, duration(each.full_in_ms)) : "–" },
            { title: "Error", cell: (each) => each.error ? h("span", { class: "bad" }, visible(each.error)) : "–" },
          ],
        }),
      ];
    },
  };
}

export function topicsPage(context) {
  const chosen = {
    match: context.params.get("match") || "", sort: context.params.get("sort") || "name",
    reverse: context.params.get("reverse") === "true", internal: context.params.get("internal") === "true", page: Number(context.params.get("page")) || 0,
  };
  let found = null;
  let typing = null;
  const list = listing("topics", "topic", chosen);
  const creation = changePart(context, {
    title: "Create a topic", kind: "topics.create", action: "Create it",
    fields: [["topic", "Name", "orders"], ["partitions", "Partitions", "the cluster's default"], ["replicas", "Replicas", "the cluster's default"], ["settings", "Settings", "retention.ms=7d\nmax.message.bytes=2MiB", "lines"]],
    done: (changed) => context.go("/topic", { name: changed.subject, tab: "settings" }),
  });
  const change = (changes) => { Object.assign(chosen, changes); context.remember(chosen); context.reload(); };
  return {
    title: "Topics",
    every: context.session.every_ms,
    state: () => found && found.state,
    stop: () => clearTimeout(typing),
    load: async (signal) => { found = await list(signal); },
    view: () => [
      h("div", { class: "head" }, h("h1", null, "Topics"),
        h("div", { class: "tools" },
          h("input", { type: "search", value: chosen.match, placeholder: "Part of a name, orders*, or /regex/", "aria-label": "Filter topics", maxlength: "300",
            oninput: (event) => { const match = event.target.value; clearTimeout(typing); typing = setTimeout(() => change({ match, page: 0 }), 200); } }),
          h("label", { class: "check" }, h("input", { type: "checkbox", checked: chosen.internal, onchange: (event) => change({ internal: event.target.checked, page: 0 }) }), "internal"),
          creation.button())),
      creation.view(),
      found ? [
        notRead(found.state),
        table({
          caption: "Topics", items: found.items, key: (each) => each.topic, empty: chosen.match ? "No topic matches." : "There are no topics.",
          sort: chosen.sort, reverse: chosen.reverse,
          onsort: (sort) => change({ sort, reverse: chosen.sort === sort ? !chosen.reverse : false, page: 0 }),
          columns: [
            { title: "Topic", sort: "name", class: "name", cell: (each) => context.link("/topic", { name: each.topic }, each.topic) },
            { title: "Partitions", sort: "partitions", right: true, cell: (each) => number(each.partitions) },
            { title: "Replicas", right: true, cell: (each) => number(each.replicas) },
            { title: "Records", sort: "records", right: true, cell: (each) => number(each.records) },
            { title: "Bytes", sort: "bytes", right: true, cell: (each) => bytes(each.bytes) },
            { title: "Written", sort: "rate", right: true, cell: (each) => each.bytes_per_second === null || each.bytes_per_second === undefined ? "…" : `${bytes(each.bytes_per_second)}/s` },
            { title: "Problems", sort: "problems", cell: (each) => each.problems ? h("span", { class: "bad" }, each.problems) : "–" },
          ],
        }),
        pager(found, (page) => change({ page })),
      ] : h("p", { class: "quiet" }, "Reading topics …"),
    ],
  };
}

// A list that the API pages, as `chosen` says. Nothing moves under the cursor: while it is over a list, a refresh keeps the
// rows, with the newest that is known of each. The answer to a question that is not asked any more is dropped.
export function listing(name, key, chosen) {
  let shown = null;
  let question = null;
  return async (signal) => {
    const asked = JSON.stringify(chosen);
    const next = await get(name, chosen, signal);
    if (asked !== JSON.stringify(chosen)) return shown;
    if (shown && question === asked && document.querySelector("tbody:hover")) {
      const known = new Map([...shown.items, ...next.items].map((each) => [each[key], each]));
      next.items = shown.items.map((each) => known.get(each[key]));
    }
    question = asked;
    shown = next;
    return shown;
  };
}

const TABS = [["records", "Records"], ["partitions", "Partitions"], ["settings", "Settings"], ["groups", "Groups"]];

export function topicPage(context) {
  const name = context.params.get("name") || "";
  let tab = context.params.get("tab") || "records";
  let page = 0;
  let found = null;
  let groups = null;
  let allSettings = false;
  const records = recordsPart(context, name, (more) => context.remember({ name, tab, ...more }));
  const again = () => context.reload();
  let leaving = false; // a topic that is being deleted is not read again
  const changes = [
    changePart(context, { title: "Change settings", kind: "topics.set", given: { topic: name }, action: "Change them", done: again,
      fields: [["settings", "Set", "retention.ms=7d", "lines"], ["unset", "Remove from the topic", "segment.bytes", "lines"]] }),
    changePart(context, { title: "Add partitions", kind: "topics.add-partitions", given: { topic: name }, action: "Add them", done: again, fields: [["total", "Partitions in all", "12"]] }),
    changePart(context, { title: "Delete", kind: "topics.delete", given: { topic: name }, action: "Delete it with all records", danger: true,
      running: (is) => { leaving = is; }, done: () => context.go("/topics") }),
  ];
  const open = async (next) => {
    tab = next;
    context.remember({ name, tab });
    context.draw();
    if (tab === "groups" && !groups) { groups = await get("topic/groups", { name }); context.draw(); }
  };
  return {
    title: name,
    every: context.session.every_ms,
    state: () => found && found.state,
    stop: () => records.stop(),
    load: async (signal) => {
      if (leaving) return;
      found = await get("topic", { name, page }, signal);
      if (tab === "groups") groups = await get("topic/groups", { name }, signal);
      if (tab === "records") await records.begin();
    },
    view: () => [
      crumbs(context, context.link("/topics", {}, "Topics"), " › "),
      h("div", { class: "head" }, h("h1", { class: "name" }, name), h("div", { class: "tools" }, changes.map((each) => each.button()), copy(name, "Copy name"))),
      changes.map((each) => each.view()),
      found ? [
        h("dl", { class: "figures" },
          figure("Partitions", number(found.topic.partitions), `× ${number(found.topic.replicas)} replicas`),
          figure("Records", number(found.topic.records), "at most"),
          figure("Bytes", bytes(found.topic.bytes), found.topic.retention_bytes_limit ? `≤ ${bytes(found.topic.retention_bytes_limit)}` : "all replicas"),
          figure("Written", found.bytes_per_second === null || found.bytes_per_second === undefined ? "…" : `${bytes(Math.round(found.bytes_per_second))}/s`, spark(found.history, "bytes written per second")),
          figure("Retention", ...retention(found.settings)),
          figure("Problems", found.topic.problems ? h("span", { class: "bad" }, found.topic.problems) : h("span", { class: "good" }, "none"))),
        h("div", { class: "tabs", role: "tablist" }, TABS.map(([id, title]) =>
          h("button", { type: "button", role: "tab", "aria-selected": String(tab === id), class: tab === id ? "chosen" : "", onclick: () => open(id) }, title))),
        tab === "records" ? records.view(found) : null,
        tab === "partitions" ? [partitions(found.partitions.items), pager(found.partitions, (next) => { page = next; context.reload(); })] : null,
        tab === "settings" ? settings(found.settings, allSettings, (all) => { allSettings = all; context.draw(); }) : null,
        tab === "groups" ? (groups ? [table({
          caption: "Groups that read the topic", items: groups.items, key: (each) => each.group, empty: "No group has committed for it.",
          columns: [
            { title: "Group", class: "name", cell: (each) => context.link("/group", { name: each.group }, visible(each.group) || "(no name)") },
            { title: "State", cell: (each) => each.state },
            { title: "Lag", right: true, cell: (each) => number(each.lag) }],
        }), groups.left_out ? h("p", { class: "quiet" }, `${number(groups.left_out)} groups more were not asked.`) : null] : h("p", { class: "quiet" }, "Asking the groups …")) : null,
      ] : h("p", { class: "quiet" }, "Reading the topic …"),
    ],
  };
}

function retention(settings) {
  const value = (name) => settings[name] && settings[name].value;
  if ((value("cleanup.policy") || "").includes("compact") && !(value("cleanup.policy") || "").includes("delete")) return ["compacted"];
  const ms = value("retention.ms");
  const size = value("retention.bytes");
  const time = ms === null || ms === undefined ? "–" : Number(ms) < 0 ? "for ever" : duration(Number(ms));
  return [time, size !== null && size !== undefined && Number(size) >= 0 ? `or ${bytes(size)} per partition` : null];
}

const partitions = (items) => table({
  caption: "Partitions", items, key: (each) => each.partition,
  columns: [
    { title: "Partition", right: true, cell: (each) => String(each.partition) },
    { title: "Leader", right: true, cell: (each) => each.leader === null ? h("span", { class: "bad" }, "none") : String(each.leader) },
    { title: "Replicas", cell: (each) => each.replicas.join(", ") },
    { title: "In sync", cell: (each) => h("span", { class: each.in_sync.length < each.replicas.length ? "bad" : "" }, each.in_sync.join(", ") || "none") },
    { title: "First offset", right: true, cell: (each) => number(each.first_offset) },
    { title: "End", right: true, cell: (each) => number(each.end_offset) },
    { title: "Bytes", right: true, cell: (each) => bytes(each.bytes) }],
});

function settings(all, showsAll, choose) {
  const items = Object.entries(all).map(([name, each]) => ({ name, ...each })).filter((each) => showsAll || each.source === "DYNAMIC_TOPIC_CONFIG");
  return [
    h("label", { class: "check" }, h("input", { type: "checkbox", checked: showsAll, onchange: (event) => choose(event.target.checked) }), "also those that are not set on the topic"),
    table({
      caption: "Settings", items, key: (each) => each.name, empty: "Nothing is set on the topic itself.",
      columns: [
        { title: "Setting", class: "name", cell: (each) => each.name },
        { title: "Value", class: "wrap", cell: (each) => each.sensitive ? h("i", null, "not told") : each.value === null ? "–" : visible(each.value) },
        { title: "Comes from", cell: (each) => ({ DYNAMIC_TOPIC_CONFIG: "the topic", DEFAULT_CONFIG: "Kafka's default", STATIC_BROKER_CONFIG: "server.properties", DYNAMIC_BROKER_CONFIG: "the broker", DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers" }[each.source] || each.source) }],
    }),
  ];
}
