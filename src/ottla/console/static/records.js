// Records of a topic: a search within bounds, one record whole, and the topic followed.

import { address, bytes, copy, download, get, h, number, post, Problem, quoted, say, visible } from "./ui.js";

const MOST_ROWS = 500; // of a tail: older ones go
const DECODINGS = ["auto", "json", "avro", "protobuf", "text", "hex"];
const ENDED = { limit: "found as many as asked for", scanned: "looked at as many as a search may", bytes: "read as much as a search may", seconds: "took as long as a search may", end: "all of it" };

export function recordsPart(context, topic, remember) {
  const params = context.params;
  const chosen = {
    from: params.get("from") || "-20", until: params.get("until") || "", partitions: params.get("partitions") || "", key: params.get("key") || "", grep: params.get("grep") || "",
    where: params.get("where") || "", header: params.get("header") || "", as: params.get("as") || "auto", limit: params.get("limit") || "50",
  };
  let found = null;
  let rows = [];
  let problem = null;
  let busy = false;
  let stream = null; // of what is followed; it is closed while nobody sees the tab
  let isFollowing = false;
  let counted = null;
  let waiting = []; // what came while the cursor was over the list: it would push away what somebody looks at
  const opened = new Map();
  const draft = draftPart(context, topic);

  const asked = () => ({ topic, ...chosen });
  const place = (record) => `${record.partition}:${record.offset}`;

  async function search(more) {
    stopTail();
    busy = true;
    problem = null;
    if (!more) opened.clear();
    remember(chosen);
    context.draw();
    try {
      found = await get("records", more ? { ...asked(), from: more } : asked());
      const latestFirst = /^-\d+$/.test(chosen.from);
      const fresh = latestFirst ? [...found.records].reverse() : found.records;
      rows = more ? [...rows, ...fresh] : fresh;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problem = error;
    }
    busy = false;
    context.draw();
  }

  function follow() {
    stopTail();
    rows = [];
    found = null;
    problem = null;
    counted = { scanned: 0, skipped: 0, left_out: 0 };
    opened.clear();
    isFollowing = true;
    listen();
    context.draw();
  }

  function listen() {
    const { partitions, key, grep, where, header, as } = chosen;
    stream = new EventSource(address("tail", { topic, partitions, key, grep, where, header, as }));
    stream.onmessage = (event) => {
      const message = JSON.parse(event.data);
      if (!message.records) return;
      for (const name of ["scanned", "skipped", "left_out"]) counted[name] += message[name];
      waiting = [...[...message.records].reverse(), ...waiting].slice(0, MOST_ROWS);
      if (!document.querySelector(".records:hover")) showWaiting();
      context.draw();
    };
    stream.addEventListener("problem", (event) => { problem = new Problem(0, JSON.parse(event.data).error.type, JSON.parse(event.data).error.message); stopTail(); context.draw(); });
    stream.onerror = async () => {
      if (!stream || stream.readyState !== EventSource.CLOSED) return; // it connects again by itself
      stopTail();
      // An event source does not say why it was refused; the same question as a search does.
      try { await get("records", { ...asked(), from: "latest", limit: 1 }); problem = new Problem(0, "Ended", "the stream ended"); } catch (error) { problem = error; }
      context.draw();
    };
  }

  function showWaiting() {
    rows = [...waiting, ...rows].slice(0, MOST_ROWS);
    waiting = [];
  }

  function silence() {
    if (stream) stream.close();
    stream = null;
  }

  function stopTail() {
    silence();
    isFollowing = false;
    showWaiting();
  }

  const seen = () => { if (isFollowing && document.hidden) silence(); else if (isFollowing && !stream) listen(); };
  document.addEventListener("visibilitychange", seen);

  async function toggle(record) {
    const at = place(record);
    if (opened.has(at)) opened.delete(at);
    else {
      const asked = { waits: true }; // stands there until the answer comes; closed and opened again meanwhile, it is another
      opened.set(at, asked);
      context.draw();
      let whole;
      try { whole = (await get("record", { topic, partition: record.partition, offset: record.offset, as: chosen.as })).record; }
      catch (error) { if (!(error instanceof Problem)) throw error; whole = { problem: error.message }; }
      if (opened.get(at) !== asked) return; // somebody closed it: it stays closed
      opened.set(at, whole);
    }
    context.draw();
  }

  // The same search once more, whole, as a file.
  async function save(format) {
    busy = true;
    problem = null;
    context.draw();
    try {
      const file = await get("records/export", { ...asked(), limit: Math.min(10000, Math.max(rows.length, Number(chosen.limit))), format });
      download(file.name, file.type, file.content);
      say(`${number(file.count)} records in ${file.name}.`);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problem = error;
    }
    busy = false;
    context.draw();
  }

  const field = (name, title, props) => h("label", { class: props.wide ? "wide" : "" }, title,
    h("input", { type: "text", value: chosen[name], placeholder: props.placeholder || "", maxlength: "4000", spellcheck: "false", autocapitalize: "off", autocomplete: "off",
      oninput: (event) => { chosen[name] = event.target.value; } }));

  function form() {
    const more = chosen.until || chosen.key || chosen.header || chosen.grep;
    return h("form", { class: "search", onsubmit: (event) => { event.preventDefault(); search(); } },
      h("div", { class: "fields" },
        field("from", "From", { placeholder: "-20, -2h, earliest, 0:42" }),
        field("partitions", "Partitions", { placeholder: "all" }),
        h("label", null, "Decode", h("select", { value: chosen.as, onchange: (event) => { chosen.as = event.target.value; } }, DECODINGS.map((each) => h("option", { value: each }, each)))),
        field("where", "Where", { wide: true, placeholder: "value.total > 100 and headers.source == \"web\"" }),
        h("div", { class: "buttons" },
          h("button", { type: "submit", class: "main", disabled: busy }, busy ? "Searching …" : "Search"),
          isFollowing ? h("button", { type: "button", onclick: () => { stopTail(); context.draw(); } }, "Stop") : h("button", { type: "button", onclick: follow }, "Follow"))),
      h("details", { open: Boolean(more) }, h("summary", null, "More"),
        h("div", { class: "fields" },
          field("until", "Until", { placeholder: "the end" }),
          field("key", "Key", { placeholder: "exactly" }),
          field("header", "Header", { placeholder: "NAME=VALUE" }),
          field("grep", "Regex in key or value", { wide: true }),
          h("label", null, "At most", h("select", { value: chosen.limit, onchange: (event) => { chosen.limit = event.target.value; } }, ["20", "50", "200", "500"].map((each) => h("option", { value: each }, each))))),
        h("p", { class: "quiet" }, "The same as a command: ", h("code", { class: "wrap" }, command()), " ", copy(command()))));
  }

  function command() {
    const parts = ["ottla consume", quoted(topic), `--from ${quoted(chosen.from)}`];
    for (const name of ["until", "partitions", "key", "header", "grep", "where"]) if (chosen[name]) parts.push(`--${name} ${quoted(chosen[name])}`);
    const file = context.session.schemas[topic];
    const as = chosen.as === "auto" && file ? "avro" : chosen.as;
    if (as !== "auto") parts.push(`--as ${as}`);
    if (as === "avro" && file) parts.push(`--schema ${quoted(file)}`);
    parts.push(`-n ${chosen.limit}`);
    return parts.join(" ");
  }

  function view() {
    return [
      form(),
      draft.view(),
      problem ? h("div", { class: "problem", role: "alert" }, h("strong", null, problem.type), " ", problem.message) : null,
      isFollowing ? h("p", { class: "quiet", role: "status" }, h("span", { class: "dot pulse", "aria-hidden": "true" }), ` following · ${number(counted.scanned)} looked at`, counted.skipped ? ` · ${number(counted.skipped)} passed over, it is too fast to look at each` : "", counted.left_out ? ` · ${number(counted.left_out)} not shown: more than 50 a second` : "", waiting.length ? ` · ${number(waiting.length)} wait until the cursor leaves the list` : "") : null,
      found && !isFollowing ? h("p", { class: "quiet", role: "status" },
        `${number(rows.length)} shown · scanned ${number(found.scanned)} of ${number(found.total)} · ${found.seconds.toFixed(1)} s · ${ENDED[found.ended_by]}`,
        found.next ? [" · ", h("button", { type: "button", class: "small", disabled: busy, onclick: () => search(found.next) }, "More")] : null,
        rows.length ? [" · ", ["json", "csv"].map((format) => h("button", { type: "button", class: "small", key: format, disabled: busy, onclick: () => save(format) }, `Save as ${format.toUpperCase()}`))] : null,
        [...found.said, ...found.failures].map((each) => h("span", { class: "said" }, ` · ${each}`))) : null,
      rows.length ? h("ol", { class: "records", "aria-label": "Records", onmouseleave: () => { if (waiting.length) { showWaiting(); context.draw(); } } }, rows.map(row)) : (found || isFollowing) && !busy ? h("p", { class: "quiet" }, isFollowing ? "Waiting for records …" : "No records.") : null,
    ];
  }

  function row(record) {
    const at = place(record);
    const whole = opened.get(at);
    return h("li", { key: at },
      h("button", { type: "button", class: "record", "aria-expanded": String(opened.has(at)), onclick: () => toggle(record) },
        h("span", { class: "at" }, at), h("span", { class: "time" }, record.time ? record.time.replace("T", " ").replace("Z", "") : "no time"),
        h("span", { class: "key" }, text(record, "key")), h("span", { class: "value" }, text(record, "value"))),
      opened.has(at) ? h("div", { class: "opened" }, !whole.waits ? [detail(whole, topic), draft.button(whole)] : h("p", { class: "quiet" }, "Reading …")) : null);
  }

  return { begin: async () => { if (!found && !isFollowing && !busy && !problem) await search(); }, view, stop: () => { stopTail(); document.removeEventListener("visibilitychange", seen); } };
}

// A record to write: a new one, or one that was looked at, byte for byte unless it is edited.
function draftPart(context, topic) {
  let open = false;
  let problem = null;
  let busy = false;
  let wish = null;
  const empty = () => ({ key: "", key_base64: undefined, has_key: true, value: "", value_base64: undefined, has_value: true, headers: "[]", partition: "", confirm: "" });
  const send = async (event) => {
    event.preventDefault();
    busy = true;
    problem = null;
    context.draw();
    try {
      const record = { headers: JSON.parse(wish.headers || "[]") };
      for (const name of ["key", "value"]) {
        if (!wish[`has_${name}`]) record[name] = null;
        else if (wish[`${name}_base64`] !== undefined) record[`${name}_base64`] = wish[`${name}_base64`];
        else record[name] = wish[name];
      }
      if (wish.partition !== "") record.partition = Number(wish.partition);
      const placed = await post("produce", { topic, record, confirm: wish.confirm });
      say(`Written: partition ${placed.partition}, offset ${placed.offset}.`);
      open = false;
    } catch (error) {
      if (!(error instanceof Problem) && !(error instanceof SyntaxError)) throw error;
      problem = error instanceof SyntaxError ? `Headers: wanted a JSON list of {"key": …, "value": …}: ${error.message}` : error.message;
    }
    busy = false;
    context.draw();
  };
  const field = (name, title) => h("label", { class: "tall" }, h("span", null, title, " ",
    h("label", { class: "check" }, h("input", { type: "checkbox", checked: !wish[`has_${name}`], onchange: (event) => { wish[`has_${name}`] = !event.target.checked; context.draw(); } }), "null")),
    !wish[`has_${name}`] ? null : wish[`${name}_base64`] !== undefined ? h("span", null, `${wish[`${name}_base64`].length} characters of base64 `, h("button", { type: "button", class: "small", onclick: () => { wish[`${name}_base64`] = undefined; context.draw(); } }, "Write text instead"))
      : h("textarea", { rows: name === "key" ? "1" : "5", value: wish[name], spellcheck: "false", "aria-label": title, oninput: (event) => { wish[name] = event.target.value; } }));
  return {
    button: (record) => {
      if (!context.session.may_write || context.session.hides_something || record.problem || record.key_cut || record.value_cut || record.headers_left_out) return null;
      return h("p", null, h("button", { type: "button", class: "small", onclick: () => {
        const plain = (name) => (record[`${name}_as`] === undefined ? record[name] : undefined);
        const raw = (name) => (record[`${name}_base64`] ?? (record[`${name}_as`] !== undefined && record[`${name}_bytes`] <= 16384 ? record[`${name}_raw`] : undefined));
        wish = { ...empty(), key: plain("key") ?? "", key_base64: raw("key"), has_key: record.key_bytes !== null, value: plain("value") ?? "", value_base64: raw("value"), has_value: record.value_bytes !== null, headers: JSON.stringify(record.headers), partition: String(record.partition) };
        open = true;
        problem = null;
        context.draw();
        scrollTo({ top: 0, behavior: "smooth" });
      } }, "Edit and send again …"));
    },
    view: () => !context.session.may_write ? null : !open ? h("p", null, h("button", { type: "button", class: "small", onclick: () => { wish = empty(); open = true; context.draw(); } }, "Produce …"))
      : h("form", { class: "panel produce", onsubmit: send },
        h("h2", null, "Produce"),
        problem ? h("div", { class: "problem", role: "alert" }, problem) : null,
        field("key", "Key"), field("value", "Value"),
        h("label", { class: "tall" }, "Headers, as JSON", h("textarea", { rows: "2", value: wish.headers, spellcheck: "false", "aria-label": "Headers", oninput: (event) => { wish.headers = event.target.value; } })),
        h("div", { class: "fields" }, h("label", null, "Partition", h("input", { type: "text", value: wish.partition, placeholder: "by the key", maxlength: "9", oninput: (event) => { wish.partition = event.target.value.trim(); } })),
          context.session.asks_name ? h("label", null, `Type ${context.session.name} to agree`, h("input", { type: "text", value: wish.confirm, oninput: (event) => { wish.confirm = event.target.value; } })) : null,
          h("div", { class: "buttons" }, h("button", { type: "submit", class: "main", disabled: busy }, "Write one record"), h("button", { type: "button", onclick: () => { open = false; context.draw(); } }, "Cancel")))),
  };
}

// A key or value on one line.
export function text(record, part) {
  if (record[`${part}_base64`] !== undefined) return h("i", null, `${number(record[`${part}_bytes`])} bytes that are no text`);
  const value = record[`${part}_text`] ?? record[part];
  if (value === undefined) return h("i", null, `${bytes(record[`${part}_bytes`])}, not shown`);
  if (value === null) return h("i", null, part === "value" ? "null: a tombstone" : "no key");
  if (value === "") return h("i", null, "empty");
  return visible(String(value).slice(0, 600).replace(/\s+/g, " "));
}

export function detail(record, topic) {
  if (record.problem) return h("div", { class: "problem", role: "alert" }, record.problem);
  return [
    h("dl", { class: "facts" },
      h("dt", null, "Place"), h("dd", null, `${record.topic}-${record.partition} @ ${record.offset}`),
      h("dt", null, "Time"), h("dd", null, record.time || "none", record.timestamp_type ? " (the broker's)" : ""),
      h("dt", null, "Size"), h("dd", null, `key ${bytes(record.key_bytes)}, value ${bytes(record.value_bytes)}`)),
    part(record, "key", "Key"),
    part(record, "value", "Value"),
    h("h3", null, `Headers (${record.headers.length})`),
    record.headers.length ? h("dl", { class: "facts" }, record.headers.map((each) => [
      h("dt", null, visible(each.key ?? `base64:${each.key_base64}`)),
      h("dd", null, each.value_base64 !== undefined ? h("i", null, `base64 ${each.value_base64}`) : each.value === null ? h("i", null, "null") : visible(each.value))])) : h("p", { class: "quiet" }, "none"),
    record.headers_left_out ? h("p", { class: "quiet" }, `${number(record.headers_left_out)} more are not shown.`) : null,
    h("p", null, copy(`ottla consume ${topic} --from ${record.partition}:${record.offset} -n 1`, "Copy as command")),
  ];
}

function part(record, name, title) {
  const value = record[`${name}_pretty`] ?? record[`${name}_text`] ?? record[name];
  const raw = record[`${name}_raw`];
  return [
    h("h3", null, title, record[`${name}_as`] ? h("span", { class: "badge" }, record[`${name}_as`]) : null, " ",
      typeof (record[`${name}_text`] ?? record[name]) === "string" ? copy(record[`${name}_text`] ?? record[name]) : null),
    record[`${name}_error`] ? h("p", { class: "bad" }, record[`${name}_error`]) : null,
    value === null ? h("p", { class: "quiet" }, "null") : value === undefined ? null : h("pre", { tabindex: "0" }, visible(value)),
    record[`${name}_cut`] ? h("p", { class: "quiet" }, `Only the beginning of ${bytes(record[`${name}_bytes`])}.`) : null,
    raw ? h("details", { open: record[`${name}_base64`] !== undefined }, h("summary", null, "Bytes"), h("pre", { class: "hex", tabindex: "0" }, hex(raw))) : null,
  ];
}

function hex(base64) {
  const data = Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const part = data.subarray(at, at + 16);
    const digits = [...part].map((each) => each.toString(16).padStart(2, "0")).join(" ");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(47)}  ${[...part].map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : ".")).join("")}`);
  }
  return lines.join("\n");
}
