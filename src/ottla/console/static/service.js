// The page of one service: is it well, what does it wait for, pause and resume.

import { bytes, duration, get, h, loginFromAddress, number, patch, post, Problem, say, table, tokenForm, useWriteToken, visible } from "./ui.js";

let session = null;
let found = null;
let problem = null;
let timer = null;

const TABS = [["/", "Health"], ["/contract", "Contract"]];
const onContract = () => location.pathname === "/contract";
const open_ = (path) => (event) => {
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  event.preventDefault();
  history.pushState(null, "", path);
  draw();
};

const figure = (title, value, more) => h("div", { class: "figure" }, h("dt", null, title), h("dd", null, value, more ? h("small", null, more) : null));
const act = (verb, place) => async () => {
  try { await post(`service/${verb}`, place); say(verb === "pause" ? "Paused." : "Resumed."); await look(); }
  catch (error) { if (!(error instanceof Problem)) throw error; say(error.message); }
};

function draw() {
  document.title = `${session.name} · Ottla`;
  patch(document.getElementById("top"), [
    h("div", { class: "brand" }, h("span", { class: "mark", "aria-hidden": "true" }, "Ö"), h("strong", null, session.name),
      h("span", { class: `badge ${session.may_write ? "warn" : ""}` }, session.may_write ? "changes allowed" : "read-only")),
    h("nav", { "aria-label": "Pages" }, TABS.map(([path, title]) => h("a", { href: path, onclick: open_(path), "aria-current": onContract() === (path === "/contract") ? "page" : null }, title))),
    h("p", { class: `live ${problem ? "bad" : ""}`, role: "status" }, h("span", { class: "dot", "aria-hidden": "true" }), problem ? problem : "live"),
  ]);
  if (onContract()) {
    // A page of its own in a frame without scripts: what its texts hold is no part of this page.
    patch(document.getElementById("main"), h("iframe", { key: "contract", class: "contract", src: "/api/service/contract", title: "Contract", sandbox: "" }));
    return;
  }
  if (!found) return;
  const oldest = Math.max(0, ...found.partitions.map((each) => each.oldest_unfinished_age_ms));
  const lag = found.partitions.some((each) => each.lag === null) ? null : found.partitions.reduce((sum, each) => sum + (each.lag || 0), 0);
  patch(document.getElementById("main"), h("div", { class: "page" },
    h("div", { class: "head" }, h("h1", { class: "name" }, visible(found.group)), session.may_write ? h("div", { class: "tools" }, h("button", { type: "button", onclick: act("pause", {}) }, "Pause all"), h("button", { type: "button", onclick: act("resume", {}) }, "Resume all")) : null),
    h("dl", { class: "figures" },
      figure("Ready", h("span", { class: found.ready ? "good" : "bad" }, found.ready ? "yes" : "no")),
      figure("Alive", h("span", { class: found.alive ? "good" : "bad" }, found.alive ? "yes" : "no")),
      figure("Partitions", number(found.partitions.length + found.left_out)),
      figure("Lag", number(lag)),
      figure("Oldest unfinished", oldest ? duration(oldest) : "none"),
      figure("Retries waiting", number(found.retries_waiting)),
      figure("Runs in flight", number(found.handlers.reduce((sum, each) => sum + each.runs, 0)))),
    found.problems.map((each) => h("div", { class: "problem", role: "alert" }, visible(each))),
    h("h2", null, "Handlers"),
    table({
      caption: "Handlers", items: found.handlers, key: (each) => `${each.group} ${each.handler}`, empty: "No handler has work yet.",
      columns: [
        { title: "Handler", class: "name", cell: (each) => visible(each.handler) },
        { title: "Group", cell: (each) => visible(each.group) },
        { title: "Runs in flight", right: true, cell: (each) => number(each.runs) },
        { title: "Dead letters that the budget allows", right: true, cell: (each) => each.budget === null ? "–" : number(each.budget) }],
    }),
    found.leases.length ? [h("h2", null, "Leases of queues"), leases()] : null,
    found.retries_waiting ? [h("h2", null, "Retries that wait"), retries()] : null,
    h("h2", null, "Partitions"),
    table({
      caption: "Partitions", items: found.partitions, key: (each) => `${each.topic}-${each.partition}`, empty: "None is assigned.",
      columns: [
        { title: "Partition", class: "name", cell: (each) => `${each.topic}-${each.partition}` },
        { title: "Handler", cell: (each) => each.handler === null ? "–" : visible(each.handler) },
        { title: "Lag", right: true, cell: (each) => number(each.lag) },
        { title: "Waits", right: true, cell: (each) => each.lag_s === null ? "–" : duration(each.lag_s * 1000) },
        { title: "Oldest unfinished", right: true, cell: (each) => each.oldest_unfinished_offset === null ? "–" : `${number(each.oldest_unfinished_offset)} for ${duration(each.oldest_unfinished_age_ms)}` },
        { title: "Buffered", right: true, cell: (each) => `${number(each.buffered_records)}${each.buffered_bytes === null ? "" : `, ${bytes(each.buffered_bytes)}`}` },
        { title: "State", cell: (each) => each.stopped ? h("span", { class: "bad" }, `stopped: ${visible(each.stopped)}`) : each.paused_for.length ? `paused: ${each.paused_for.join(", ")}` : h("span", { class: "good" }, "reading") },
        ...(session.may_write ? [{ title: "Do", cell: (each) => h("span", { class: "buttons" },
          h("button", { type: "button", class: "small", onclick: act("pause", { topic: each.topic, partition: each.partition }) }, "Pause"),
          h("button", { type: "button", class: "small", onclick: act("resume", { topic: each.topic, partition: each.partition }) }, "Resume")) }] : [])],
    })));
}

const leases = () => table({
  caption: "Leases of queues", items: found.leases, key: (each) => each.group,
  columns: [
    { title: "Group", class: "name", cell: (each) => visible(each.group) },
    { title: "In flight", right: true, cell: (each) => number(each.in_flight) },
    { title: "Oldest lease", right: true, cell: (each) => each.in_flight ? duration(each.oldest_age_ms) : "–" }],
});

// What failed and is delivered again, the first first.
const retries = () => [
  table({
    caption: "Retries that wait", items: found.retries, key: (each) => `${each.topic}-${each.partition} ${each.offset}`,
    columns: [
      { title: "Due", cell: (each) => each.due_in_ms > 0 ? `in ${duration(each.due_in_ms)}` : "now" },
      { title: "At", cell: (each) => each.due ? each.due.replace("T", " ").replace("Z", "") : "–" },
      { title: "Partition", class: "name", cell: (each) => `${each.topic}-${each.partition}` },
      { title: "Offset", right: true, cell: (each) => number(each.offset) },
      { title: "Records", right: true, cell: (each) => number(each.records) },
      { title: "Failed deliveries", right: true, cell: (each) => each.attempts ? number(each.attempts) : h("span", { title: "it follows an earlier record of its key" }, "0") }],
  }),
  found.retries_waiting > found.retries.reduce((sum, each) => sum + each.records, 0) ? h("p", { class: "quiet" }, `${number(found.retries_waiting)} records wait; the first of each partition are shown.`) : null,
];

async function look() {
  try { found = await get("service"); problem = null; }
  catch (error) { if (!(error instanceof Problem)) throw error; problem = error.message; if (error.status === 401) return askToken(); }
  draw();
}

function askToken(told) {
  clearInterval(timer);
  patch(document.getElementById("main"), tokenForm("ottla run", told, begin, askToken));
}

addEventListener("popstate", () => session && draw());

async function begin() {
  try { await loginFromAddress(); } catch (error) { return askToken(error.message); }
  try { session = await get("session"); } catch (error) { return askToken(error.status === 401 ? "" : error.message); }
  useWriteToken(session.write_token);
  await look();
  clearInterval(timer);
  timer = setInterval(() => { if (!document.hidden) look(); }, session.every_ms);
}

begin();
