// Draws pages: h() describes an element, patch() makes the document be as described, and changes nothing else in it.
// Texts only ever become text nodes and attribute values. No HTML is parsed anywhere, so no record can be markup.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "rect", "polyline", "path", "g", "line", "circle", "title-svg"]);
const SAFE_LINK = /^(\/|#|data:application\/json)/;

export function h(tag, props, ...children) {
  return { tag, props: props || {}, children: children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false) };
}

export function patch(parent, described) {
  const wanted = (Array.isArray(described) ? described.flat(Infinity) : [described]).filter((each) => each !== null && each !== undefined && each !== false);
  const keyed = new Map();
  for (const node of parent.childNodes) if (node._key !== undefined) keyed.set(node._key, node);
  let at = parent.firstChild;
  for (const each of wanted) {
    const key = typeof each === "object" ? each.props.key : undefined;
    let node = key !== undefined ? keyed.get(key) : at;
    if (node && node._key !== key && key === undefined) node = at && at._key === undefined ? at : null;
    if (!node || !fits(node, each)) {
      const made = make(each);
      if (node && key === undefined && node._key === undefined) {
        parent.replaceChild(made, node);
        if (at === node) at = made;
      } else {
        parent.insertBefore(made, at);
        if (node && node._key !== undefined) { if (at === node) at = node.nextSibling; node.remove(); }
      }
      node = made;
    } else {
      if (node !== at) parent.insertBefore(node, at);
      update(node, each);
    }
    at = node.nextSibling;
  }
  while (at) { const next = at.nextSibling; at.remove(); at = next; }
}

function fits(node, each) {
  if (typeof each !== "object") return node.nodeType === 3;
  return node.nodeType === 1 && node._tag === each.tag && node._key === each.props.key;
}

function make(each) {
  if (typeof each !== "object") return document.createTextNode(String(each));
  const node = SVG_TAGS.has(each.tag) ? document.createElementNS(SVG, each.tag) : document.createElement(each.tag);
  node._tag = each.tag;
  if (each.props.key !== undefined) node._key = each.props.key;
  node._props = {};
  update(node, each);
  if (each.props.autofocus) queueMicrotask(() => node.focus());
  return node;
}

function update(node, each) {
  if (typeof each !== "object") {
    const text = String(each);
    if (node.nodeValue !== text) node.nodeValue = text;
    return;
  }
  const before = node._props;
  for (const name of Object.keys(before)) if (!(name in each.props)) set(node, name, null, before[name]);
  for (const [name, value] of Object.entries(each.props)) if (before[name] !== value) set(node, name, value, before[name]);
  node._props = each.props;
  if (each.rows) { node._rows = each.rows; fill(node); }
  else if (!("value" in each.props && each.tag === "textarea")) patch(node, each.children);
  if (each.tag === "select" && document.activeElement !== node) node.value = each.props.value; // its options are there now
}

function set(node, name, value, before) {
  if (name === "key" || name === "autofocus") return;
  if (name.startsWith("on")) {
    if (before) node.removeEventListener(name.slice(2), before);
    if (value) node.addEventListener(name.slice(2), value);
  } else if (name === "value" || name === "checked" || name === "open" || name === "disabled") {
    if (name === "open" && node.tagName === "DETAILS" && before !== undefined) return; // whoever opened it keeps it open
    if (name === "value" && document.activeElement === node) return; // whoever types is not disturbed
    node[name] = value ?? (name === "value" ? "" : false);
  } else if (value === null || value === undefined || value === false) {
    node.removeAttribute(name);
  } else if (name === "pixels") {
    node.style.height = `${value}px`;
  } else if (name === "href") {
    node.setAttribute("href", SAFE_LINK.test(value) ? value : "#");
  } else {
    node.setAttribute(name, value === true ? "" : String(value));
  }
}

// --- Amounts as people read them

export function bytes(count) {
  if (count === null || count === undefined) return "–";
  let size = Number(count);
  if (Math.abs(size) < 1024) return `${size} B`;
  for (const unit of ["KiB", "MiB", "GiB"]) {
    size /= 1024;
    if (Math.abs(size) < 1024) return `${size.toFixed(1)} ${unit}`;
  }
  return `${(size / 1024).toFixed(1)} TiB`;
}

export const number = (value) => (value === null || value === undefined ? "–" : Number(value).toLocaleString("en-US"));

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  const seconds = ms / 1000;
  if (seconds < 1) return `${Math.round(ms)} ms`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

// What a text would do to the lines around it is taken from it: control characters, and those that turn its direction.
export const visible = (text) =>
  String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
    (found) => `\\u${found.codePointAt(0).toString(16).padStart(4, "0")}`);

// A word of a command, as a shell takes it. Names are others' words: one may hold a semicolon.
export const quoted = (text) => (/^[A-Za-z0-9._:,=@%+-]+$/.test(text) ? text : `'${String(text).replaceAll("'", `'\\''`)}'`);

// --- Small pictures

export function bar(share, label, kind = "") {
  const part = Math.max(0, Math.min(1, share || 0));
  return h("svg", { class: `bar ${kind}`, viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img", "aria-label": label },
    h("rect", { class: "bar-all", x: 0, y: 0, width: 100, height: 8 }),
    h("rect", { class: "bar-part", x: 0, y: 0, width: (part * 100).toFixed(2), height: 8 }));
}

export function spark(values, label, { width = 120, height = 24, from = 0 } = {}) {
  const most = Math.max(from, ...values, 1e-9);
  const step = values.length > 1 ? width / (values.length - 1) : width;
  const y = (value) => (height - 1 - (value / most) * (height - 2)).toFixed(1);
  const points = values.map((value, index) => `${(index * step).toFixed(1)},${y(value)}`);
  return h("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    values.length > 1
      ? [h("path", { class: "spark-area", d: `M0,${height} L${points.join(" L")} L${width},${height} Z` }), h("polyline", { class: "spark-line", points: points.join(" ") })]
      : h("line", { class: "spark-line", x1: 0, y1: y(values[0] || 0), x2: width, y2: y(values[0] || 0) }));
}

// What a figure was while the page is open: `points` are [ms, value], `show` says a value as people read it.
export function plot(title, points, show) {
  const values = points.map(([, value]) => value);
  const last = show(values.at(-1));
  return h("figure", { class: "plot" },
    h("figcaption", null, h("span", null, title), h("span", null, `at most ${show(Math.max(...values))}`)),
    spark(values, `${title}, now ${last}`, { width: 600, height: 96 }),
    h("div", { class: "axis" }, h("span", null, points.length > 1 ? `${duration(points.at(-1)[0] - points[0][0])} ago` : "begins now"), h("span", null, `now ${last}`)));
}

// --- Long lists: of many rows only those near the window are in the document, with room for the others around them.

const FEW = 150;
const AROUND = 1000; // pixels above and below the window
const long = new Set();

// A tbody that has `rows`: how many there are, and a function that makes one of them.
function fill(node) {
  const { count, make: makeRow } = node._rows;
  long.add(node);
  if (!node._height) {
    patch(node, Array.from({ length: Math.min(count, 40) }, (_, at) => makeRow(at)));
    node._height = node.isConnected && node.childNodes.length ? node.getBoundingClientRect().height / node.childNodes.length : 0;
    if (!node._height) { requestAnimationFrame(() => node.isConnected && fill(node)); return; } // it is not laid out yet
  }
  const top = node.getBoundingClientRect().top;
  const first = Math.max(0, Math.min(count - 1, Math.floor((-top - AROUND) / node._height)));
  const end = Math.max(first + 1, Math.min(count, Math.ceil((innerHeight - top + AROUND) / node._height)));
  const room = (key, rows) => (rows > 0 ? [h("tr", { key, class: "room", "aria-hidden": "true", pixels: rows * node._height })] : []);
  patch(node, [...room("room above", first), ...Array.from({ length: end - first }, (_, at) => makeRow(first + at)), ...room("room below", count - end)]);
}

let filling = false;
function refill() {
  if (filling) return;
  filling = true;
  requestAnimationFrame(() => {
    filling = false;
    for (const node of long) if (node.isConnected) fill(node); else long.delete(node);
  });
}
addEventListener("scroll", refill, { passive: true });
addEventListener("resize", () => { for (const node of long) node._height = 0; refill(); });

// --- Tables

export function table({ columns, items, key, caption, empty = "Nothing here.", sort, reverse, onsort }) {
  if (!items.length) return h("p", { class: "quiet" }, empty);
  const isLong = items.length > FEW;
  const rowOf = (item, at) => h("tr", { key: key ? key(item) : undefined, "aria-rowindex": isLong ? String(at + 2) : null },
    columns.map((column) => h("td", { class: `${column.right ? "right" : ""} ${column.class || ""}`, "data-title": column.title }, column.cell(item))));
  const body = isLong
    ? { ...h("tbody", { key: "long" }), rows: { count: items.length, make: (at) => rowOf(items[at], at) } }
    : h("tbody", { key: "short" }, items.map(rowOf));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { "aria-rowcount": isLong ? String(items.length + 1) : null },
      h("caption", { class: "hidden" }, caption),
      h("thead", null, h("tr", null, columns.map((column) => {
        const sorted = column.sort && column.sort === sort;
        return h("th", { scope: "col", class: column.right ? "right" : "", "aria-sort": sorted ? (Boolean(reverse) === Boolean(column.right) ? "ascending" : "descending") : null },
          column.sort && onsort ? h("button", { class: `sort${sorted ? " sorted" : ""}`, type: "button", onclick: () => onsort(column.sort) }, column.title, sorted ? (Boolean(reverse) === Boolean(column.right) ? " ↑" : " ↓") : "") : column.title);
      }))),
      body));
}

export function pager({ total, page, size }, go) {
  if (total <= size) return h("p", { class: "quiet" }, `${number(total)} in all`);
  const last = Math.ceil(total / size) - 1;
  return h("nav", { class: "pager", "aria-label": "Pages" },
    h("button", { type: "button", disabled: page <= 0, onclick: () => go(page - 1) }, "← Earlier"),
    h("span", null, `${number(page * size + 1)}–${number(Math.min(total, (page + 1) * size))} of ${number(total)}`),
    h("button", { type: "button", disabled: page >= last, onclick: () => go(page + 1) }, "Later →"));
}

export function copy(text, label = "Copy") {
  return h("button", { type: "button", class: "small", onclick: async (event) => {
    const button = event.currentTarget;
    try { await navigator.clipboard.writeText(text); say("Copied."); } catch { say("The browser does not allow to copy."); }
    button.focus();
  } }, label);
}

// Hands a text to the browser as a file. It comes from this page: no request is made for it.
export function download(name, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// A note over the bottom of the page. It covers what stands there, so it goes as soon as it is read: a word is read at once,
// and whoever scrolls, types or clicks has seen it.
let fading;
export function say(text) {
  const place = document.getElementById("said");
  place.textContent = text;
  place.className = text ? "shown" : "";
  clearTimeout(fading);
  fading = setTimeout(unsay, 1200 + 50 * text.length);
}
function unsay() {
  clearTimeout(fading);
  const place = document.getElementById("said");
  place.className = "";
  place.textContent = "";
}
for (const kind of ["wheel", "touchmove", "pointerdown", "keydown"]) addEventListener(kind, unsay, { passive: true, capture: true });

// --- The API

export class Problem extends Error {
  constructor(status, type, message) { super(message); this.status = status; this.type = type; }
}

let writeToken = null;
export const useWriteToken = (token) => { writeToken = token; };

async function answered(response) {
  let body = null;
  try { body = await response.json(); } catch { /* said below */ }
  if (!response.ok || body === null) {
    const error = (body && body.error) || {};
    throw new Problem(response.status, error.type || "Problem", error.message || `HTTP ${response.status}`);
  }
  return body;
}

export function address(name, params) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params || {})) {
    if (value === null || value === undefined || value === "" || value === false) continue;
    for (const each of Array.isArray(value) ? value : [value]) query.append(key, String(each));
  }
  const text = query.toString();
  return `/api/${name}${text ? `?${text}` : ""}`;
}

async function asked(url, options) {
  let response;
  try { response = await fetch(url, { credentials: "same-origin", ...options }); }
  catch (error) { if (error.name === "AbortError") throw error; throw new Problem(0, "Gone", "the console does not answer: is `ottla console` still running?"); }
  return answered(response);
}

export const get = (name, params, signal) => asked(address(name, params), { signal });

export const post = (name, body) => asked(`/api/${name}`, {
  method: "POST", body: JSON.stringify(body || {}),
  headers: { "Content-Type": "application/json", "X-Ottla-Token": writeToken || "" },
});

const login = (token) => asked("/api/login", { method: "POST", headers: { "X-Ottla-Token": token } });

// The token of the address that a command printed. It goes into a cookie at once: it is in no history and no screenshot.
export async function loginFromAddress() {
  const given = /^#token=([A-Za-z0-9._~-]{1,300})$/.exec(location.hash);
  if (!given) return;
  history.replaceState(null, "", location.pathname + location.search);
  await login(given[1]);
}

// Asks for the token that a command printed; `refused` is told why one was not taken.
export const tokenForm = (command, problem, opened, refused) => h("form", { class: "login", onsubmit: async (event) => {
  event.preventDefault();
  try { await login(document.getElementById("token").value.trim()); await opened(); } catch (error) { refused(error.message); }
} },
  h("h1", null, "Token"),
  h("p", null, "Open the address that ", h("code", null, command), " printed, or paste the token behind its ", h("code", null, "#token="), "."),
  problem ? h("div", { class: "problem", role: "alert" }, problem) : null,
  h("label", null, "Token", h("input", { id: "token", type: "password", autocomplete: "off", autofocus: true, required: true, maxlength: "300" })),
  h("button", { type: "submit", class: "main" }, "Open"));
