// Which page is shown, and when it is loaded again. Pages are functions of a context; see pages-*.js.

import { get, h, loginFromAddress, patch, Problem, say, tokenForm, useWriteToken } from "./ui.js";
import { accessPage } from "./pages-access.js";
import { clusterPage, topicPage, topicsPage } from "./pages-topics.js";
import { groupPage, groupsPage } from "./pages-groups.js";
import { lettersPage, letterTopicPage } from "./pages-letters.js";
import { schemaPage, schemasPage } from "./pages-schemas.js";
import { declaredPage } from "./pages-declared.js";
import { doctorPage, embeddedPage, movesPage } from "./pages-operate.js";

const PAGES = {
  "/": clusterPage,
  "/topics": topicsPage,
  "/topic": topicPage,
  "/groups": groupsPage,
  "/group": groupPage,
  "/letters": lettersPage,
  "/letters/topic": letterTopicPage,
  "/schemas": schemasPage,
  "/schema": schemaPage,
  "/access": accessPage,
  "/declared": declaredPage,
  "/doctor": doctorPage,
  "/moves": movesPage,
  "/embedded": embeddedPage,
};
const MENU = [
  ["/", "Cluster", ["/"]],
  ["/topics", "Topics", ["/topics", "/topic"]],
  ["/groups", "Groups", ["/groups", "/group"]],
  ["/letters", "Dead letters", ["/letters", "/letters/topic"]],
  ["/schemas", "Schemas", ["/schemas", "/schema"]],
  ["/access", "Access", ["/access"]],
  ["/declared", "Declared", ["/declared"]],
  ["/doctor", "Doctor", ["/doctor"]],
  ["/moves", "Moves", ["/moves"]],
  ["/embedded", "Embedded", ["/embedded"]],
];
const NEEDS = { "/schemas": "has_registry", "/declared": "has_declared", "/embedded": "has_control" }; // options of the command

let session = null;
let shown = null; // the page, its context, its timer
let number = 0;

function top_(state) {
  const problem = state && (state.problem || (shown && shown.page.every && state.age_ms > Math.max(STALE_MS, shown.page.every + 5000) ? "not read again since" : null));
  return [
    h("div", { class: "brand" }, h("a", { href: "/", onclick: follow("/") }, h("span", { class: "mark", "aria-hidden": "true" }, "Ö"), "Ottla"),
      h("span", { class: "where", title: session.bootstrap_servers }, session.name),
      h("span", { class: `badge ${session.may_write ? "warn" : ""}` }, session.may_write ? "changes allowed" : "read-only")),
    h("nav", { "aria-label": "Pages" }, MENU.filter(([path]) => !NEEDS[path] || session[NEEDS[path]]).map(([path, title, paths]) =>
      h("a", { href: path, onclick: follow(path), "aria-current": shown && paths.includes(shown.path) ? "page" : null }, title))),
    h("form", { class: "find", role: "search", onsubmit: (event) => { event.preventDefault(); go("/topics", { match: document.getElementById("find").value }); } },
      h("input", { id: "find", type: "search", placeholder: "Find a topic  ( / )", "aria-label": "Find a topic", maxlength: "300" })),
    h("p", { class: `live ${problem ? "bad" : ""}` }, // the age is not announced: it changes each second
      state ? [h("span", { class: "dot", "aria-hidden": "true" }), age(state), h("span", { role: "status" }, problem ? `: ${problem}` : "")] : ""),
  ];
}

const STALE_MS = 15000; // what is older is not shown as if it were of now
const age = (state) => `as of ${ago(state.age_ms)}${state.figures_age_ms - state.age_ms > STALE_MS ? `, figures ${ago(state.figures_age_ms)}` : ""}`;
const ago = (ms) => (ms < 120000 ? `${Math.round(ms / 1000)} s ago` : `${Math.round(ms / 60000)} min ago`);

function follow(path, params) {
  return (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    event.preventDefault();
    go(path, params);
  };
}

function url(path, params) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params || {})) if (value !== null && value !== undefined && value !== "" && value !== false) query.set(key, value);
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

function go(path, params) {
  history.pushState(null, "", url(path, params));
  open_();
  document.getElementById("main").focus({ preventScroll: true });
  scrollTo(0, 0);
}

function draw() {
  if (!shown) return;
  document.title = `${shown.page.title} · Ottla`;
  patch(document.getElementById("top"), top_(stateOf(shown)));
  patch(document.getElementById("main"), [
    shown.problem ? h("div", { class: "problem", role: "alert" }, h("strong", null, shown.problem.type), " ", shown.problem.message) : null,
    h("div", { class: "page", key: `${shown.number}` }, shown.page.view()),
  ]);
}

// How old is what the page shows, now. Where it could not be loaded again, what was there stays, with its age and the reason.
function stateOf(of) {
  const state = of.page.state ? of.page.state() : null;
  if (!of.loadedAt || (!state && !of.problem)) return state;
  const since = Date.now() - of.loadedAt;
  const ages = { age_ms: since + (state ? state.age_ms : 0), figures_age_ms: since + (state ? state.figures_age_ms : 0) };
  return { ...state, ...ages, problem: of.problem ? of.problem.message : state.problem };
}

setInterval(() => { if (shown && !document.hidden) patch(document.getElementById("top"), top_(stateOf(shown))); }, 1000); // ages grow while an answer is waited for

async function load(of) {
  try {
    await of.page.load(of.stopped.signal);
    of.problem = null;
    of.loadedAt = Date.now();
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Problem)) throw error;
    if (error.status === 401) return askToken();
    of.problem = error;
  }
  if (shown === of) draw();
}

function again(of) {
  if (!of.page.every) return;
  of.timer = setTimeout(async () => {
    if (shown !== of) return;
    if (!document.hidden) await load(of); // a tab that nobody sees asks nothing
    again(of);
  }, of.page.every);
}

async function open_() {
  if (shown) { clearTimeout(shown.timer); shown.stopped.abort(); if (shown.page.stop) shown.page.stop(); }
  const path = location.pathname;
  const make = PAGES[path];
  const context = {
    session, params: new URLSearchParams(location.search), go, follow, draw, url,
    link: (to, params, ...text) => h("a", { href: url(to, params), onclick: follow(to, params) }, text),
    // The address follows what is chosen on the page, so that it can be sent to somebody; no new page begins.
    remember: (params) => history.replaceState(null, "", url(path, params)),
    reload: () => load(of),
  };
  const page = make ? make(context) : { title: "Not here", view: () => h("p", { class: "quiet" }, "There is no such page."), load: async () => {} };
  const of = { page, path, number: ++number, problem: null, loadedAt: null, stopped: new AbortController(), timer: null };
  shown = of;
  draw();
  await load(of);
  if (shown === of) again(of);
}

function askToken(problem) {
  shown = null;
  patch(document.getElementById("top"), h("div", { class: "brand" }, h("span", { class: "mark", "aria-hidden": "true" }, "Ö"), "Ottla"));
  patch(document.getElementById("main"), tokenForm("ottla console", problem, begin, askToken));
}

async function begin() {
  try { await loginFromAddress(); } catch (error) { return askToken(error.message); }
  try { session = await get("session"); }
  catch (error) {
    if (error.status === 401) return askToken();
    patch(document.getElementById("main"), h("div", { class: "problem", role: "alert" }, error.message));
    return;
  }
  useWriteToken(session.write_token);
  await open_();
}

document.addEventListener("visibilitychange", () => { if (!document.hidden && shown && shown.page.every) load(shown); }); // it asked nothing meanwhile
addEventListener("popstate", () => session && open_());
addEventListener("hashchange", () => { if (location.hash.startsWith("#token=")) begin(); });
addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName || "");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    const find = document.querySelector("#main input[type=search]") || document.getElementById("find");
    if (find) { event.preventDefault(); find.focus(); }
  } else if (event.key === "Escape" && typing) event.target.blur();
});
addEventListener("unhandledrejection", (event) => { if (event.reason && event.reason.name === "AbortError") event.preventDefault(); else if (event.reason instanceof Problem) { event.preventDefault(); say(event.reason.message); } });

begin();
