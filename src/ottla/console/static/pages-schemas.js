// Schemas of the registry: subjects, versions, differences; changes that are shown before they are made and can be undone.

import { copy, get, h, number, pager, post, Problem, quoted, say, table, visible } from "./ui.js";
import { crumbs, listing } from "./pages-topics.js";

const LEVELS = ["BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE"];
const places = (found) => found.map((each) => `${each.subject} version ${each.version}`).join(", ");

export function schemasPage(context) {
  const chosen = { match: context.params.get("match") || "", reverse: context.params.get("reverse") === "true", deleted: context.params.get("deleted") === "true", page: Number(context.params.get("page")) || 0 };
  let found = null;
  let typing = null;
  const list = listing("schemas", "subject", chosen);
  const change = (changes) => { Object.assign(chosen, changes); context.remember(chosen); context.reload(); };
  const changes = changePart(context, null);
  return {
    title: "Schemas",
    stop: () => clearTimeout(typing),
    load: async (signal) => { found = await list(signal); },
    view: () => [
      h("div", { class: "head" }, h("h1", null, "Schemas"), h("div", { class: "tools" },
        h("input", { type: "search", value: chosen.match, placeholder: "Part of a name, orders*, or /regex/", "aria-label": "Filter subjects", maxlength: "300",
          oninput: (event) => { const match = event.target.value; clearTimeout(typing); typing = setTimeout(() => change({ match, page: 0 }), 200); } }),
        h("label", { class: "check" }, h("input", { type: "checkbox", checked: chosen.deleted, onchange: (event) => change({ deleted: event.target.checked, page: 0 }) }), "deleted ones too"),
        found ? changes.buttons(found) : null)),
      found ? [
        h("p", { class: "quiet" }, `${visible(found.registry)}: compatibility ${found.level} for subjects without a level of their own`),
        changes.view(),
        table({
          caption: "Subjects", items: found.items, key: (each) => each.subject, empty: chosen.match ? "No subject matches." : "There are no subjects.",
          sort: "subject", reverse: chosen.reverse, onsort: () => change({ reverse: !chosen.reverse, page: 0 }),
          columns: [
            { title: "Subject", sort: "subject", class: "name", cell: (each) => context.link("/schema", { subject: each.subject, version: each.deleted ? each.version : null }, visible(each.subject)) },
            { title: "Latest", right: true, cell: (each) => number(each.version) },
            { title: "Id", right: true, cell: (each) => String(each.id) },
            { title: "Type", cell: (each) => each.type },
            { title: "References", right: true, cell: (each) => number(each.references) },
            { title: "State", cell: (each) => each.deleted ? h("span", { class: "bad" }, "deleted") : "" }],
        }), pager(found, (page) => change({ page }))] : h("p", { class: "quiet" }, "Asking the registry …"),
    ],
  };
}

export function schemaPage(context) {
  const subject = context.params.get("subject") || "";
  const version = context.params.get("version");
  let found = null;
  let compared = null;
  let problem = null;
  const pair = { from: "", to: "" };
  const changes = changePart(context, subject);
  const compare = async () => {
    problem = null;
    try { compared = await get("schema/diff", { subject, ...pair }); } catch (error) { if (!(error instanceof Problem)) throw error; compared = null; problem = error.message; }
    context.draw();
  };
  const choose = (name, title) => h("label", null, title, h("select", { value: pair[name], onchange: (event) => { pair[name] = event.target.value; } },
    found.versions.map((each) => h("option", { value: String(each.version) }, `version ${each.version}`))));
  return {
    title: subject,
    load: async (signal) => {
      found = await get("schema", { subject, version }, signal);
      const numbers = found.versions.map((each) => String(each.version));
      if (!numbers.includes(pair.to)) pair.to = String(found.version);
      if (!numbers.includes(pair.from)) pair.from = numbers[Math.max(0, numbers.indexOf(pair.to) - 1)];
    },
    view: () => [
      crumbs(context, context.link("/schemas", {}, "Schemas"), " › "),
      h("div", { class: "head" }, h("h1", { class: "name" }, visible(subject)), h("div", { class: "tools" }, copy(subject, "Copy name"), found ? changes.buttons(found) : null)),
      changes.view(),
      found ? [
        h("dl", { class: "figures" },
          fig("Version", number(found.version)), fig("Id", String(found.id)), fig("Type", found.type),
          fig("Compatibility", found.compatibility, found.level.own ? "its own" : "the registry's")),
        found.references.length ? h("p", null, "Refers to ", found.references.map((each, at) => [at ? ", " : "", context.link("/schema", { subject: each.subject, version: each.version }, `${visible(each.name)} = ${visible(each.subject)} version ${each.version}`)])) : null,
        found.referenced_by.length ? h("p", null, "Used by ", found.referenced_by.map((each, at) => [at ? ", " : "", context.link("/schema", { subject: each.subject, version: each.version }, `${visible(each.subject)} version ${each.version}`)])) : null,
        found.versions_of_id.length > 1 ? h("p", { class: "quiet" }, `Id ${found.id} is ${visible(places(found.versions_of_id))}.`) : null,
        h("section", { "aria-label": "Schema" }, h("pre", null, h("code", null, found.lines.map(visible).join("\n"))), copy(found.schema_text, "Copy schema")),
        h("h2", null, "Versions"),
        table({
          caption: "Versions", items: found.versions, key: (each) => String(each.version),
          columns: [
            { title: "Version", right: true, cell: (each) => context.link("/schema", { subject, version: each.version }, String(each.version)) },
            { title: "Id", right: true, cell: (each) => String(each.id) },
            { title: "Type", cell: (each) => each.type },
            { title: "References", class: "wrap", cell: (each) => each.references.length ? visible(places(each.references)) : "–" },
            { title: "State", cell: (each) => each.deleted ? h("span", { class: "bad" }, "deleted") : "" },
            ...(context.session.may_write ? [{ title: "Do", cell: (each) => each.deleted ? "" : h("button", { type: "button", class: "small", onclick: () => changes.remove(each.version) }, "Delete …") }] : [])],
        }),
        found.versions.length > 1 ? h("section", { class: "panel", "aria-label": "Differences" },
          h("h2", null, "Differences"),
          h("form", { class: "fields", onsubmit: (event) => { event.preventDefault(); compare(); } }, choose("from", "From"), choose("to", "To"), h("div", { class: "buttons" }, h("button", { type: "submit" }, "Compare"))),
          problem ? h("div", { class: "problem", role: "alert" }, problem) : null,
          compared ? differences(compared) : null) : null,
      ] : h("p", { class: "quiet" }, "Asking the registry …"),
    ],
  };
}

const fig = (title, value, more) => h("div", { class: "figure" }, h("dt", null, title), h("dd", null, value, more ? h("small", null, more) : null));

const KINDS = { "+": "good", "-": "bad" };
const differences = (found) => [
  found.text.length ? h("pre", null, h("code", null, found.text.map((line) => h("span", { class: KINDS[line[0]] || "quiet" }, `${visible(line)}\n`)))) : h("p", { class: "quiet" }, "The text is the same."),
  found.not_compared !== null ? h("p", { class: "quiet" }, `Only the text was compared: ${visible(found.not_compared)}`) : [
    reads("The new schema reads data of the old one", found.backward), reads("The old schema reads data of the new one", found.forward)],
];
const reads = (title, problems) => problems.length
  ? h("div", { class: "problem" }, `${title}: no`, h("ul", null, problems.map((each) => h("li", null, visible(each)))))
  : h("p", null, `${title}: `, h("span", { class: "good" }, "yes"));

// What changes the registry: first what would change, then a button that does it.
function changePart(context, subject) {
  let open = null; // which form
  let plan = null;
  let problem = null;
  let done = null;
  let busy = false;
  const wish = { subject: subject || "", text: "", type: "AVRO", references: "", level: "", confirm: "" };

  async function run(act) {
    busy = true;
    problem = null;
    context.draw();
    try { await act(); } catch (error) { if (!(error instanceof Problem)) throw error; problem = error.message; }
    busy = false;
    context.draw();
  }
  const preview = (ask) => run(async () => { plan = null; done = null; plan = await ask(); });
  const apply = () => run(async () => {
    const number_ = plan.plan;
    plan = { ...plan, plan: null };
    done = await post("schema/apply", { plan: number_, confirm: wish.confirm });
    plan = null;
    open = null;
    say("Done.");
    await context.reload();
  });
  const remove = (version) => { open = "delete"; preview(() => get("schema/delete", { subject, version })); };
  const restore = (content) => { open = "restore"; preview(() => post("schema/restore", { content })); };
  const toggle = (name) => () => { open = open === name ? null : name; plan = null; problem = null; done = null; context.draw(); };
  const button = (name, title) => h("button", { type: "button", "aria-expanded": String(open === name), onclick: toggle(name) }, title);

  const input = (name, title, placeholder) => h("label", null, title, h("input", { type: "text", value: wish[name], placeholder, maxlength: "2000", spellcheck: "false", autocomplete: "off", oninput: (event) => { wish[name] = event.target.value; } }));
  const select = (name, title, values) => h("label", null, title, h("select", { value: wish[name], onchange: (event) => { wish[name] = event.target.value; } }, values.map(([value, text]) => h("option", { value }, text))));
  const form = (title, ask, ...fields) => h("form", { class: "fields", onsubmit: (event) => { event.preventDefault(); preview(ask); } }, fields, h("div", { class: "buttons" }, h("button", { type: "submit", disabled: busy }, title)));

  const forms = {
    register: () => form("Show what would change",
      () => post("schema/register", { subject: wish.subject, text: wish.text, type: wish.type, references: wish.references.split(/\s+/).filter(Boolean) }),
      subject ? null : input("subject", "Subject", "orders-value"), select("type", "Type", ["AVRO", "JSON", "PROTOBUF"].map((each) => [each, each])),
      input("references", "References", "shop.Item=items-value:1"),
      h("label", { class: "wide" }, "Schema", h("textarea", { value: wish.text, rows: "10", spellcheck: "false", oninput: (event) => { wish.text = event.target.value; } }))),
    level: () => form("Show what would change", () => get("schema/level", { subject, level: wish.level }),
      select("level", "Compatibility", [...(subject ? [["", "the registry's"]] : []), ...LEVELS.map((each) => [each, each])])),
    restore: () => h("label", null, "Undo file", h("input", { type: "file", accept: ".json", onchange: async (event) => { const [file] = event.target.files; if (file) restore(await file.text()); } })),
    delete: () => null,
  };
  const COLUMNS = [["subject", "Subject"], ["old_version", "Version before"], ["version", "Version"], ["id", "Id"], ["type", "Type"], ["result", "Result"], ["old_level", "Before"], ["level", "Level"]];
  const shownPlan = () => [
    table({
      caption: "What would change", items: plan.items, empty: "Nothing to change.",
      columns: COLUMNS.filter(([name]) => plan.items.length && name in plan.items[0]).map(([name, title]) => ({ title, class: name === "subject" ? "name" : "", cell: (each) => each[name] === null ? "–" : visible(each[name]) })),
    }),
    plan.items.flatMap((each) => each.problems || []).map((each) => h("div", { class: "problem" }, visible(each))),
    plan.plan ? h("div", { class: "buttons" },
      context.session.asks_name ? input("confirm", `Type ${context.session.name} to agree`, context.session.name) : null,
      h("button", { type: "button", class: `main ${open === "delete" ? "danger" : ""}`, disabled: busy, onclick: apply }, TITLES[open])) : null,
  ];
  const TITLES = { register: "Register", level: "Set the level", restore: "Restore", delete: "Delete" };

  return {
    remove,
    buttons: (found) => !context.session.may_write ? (subject ? copy(`ottla schemas delete ${quoted(subject)} --dry-run`, "Copy a command") : null) : [
      button("register", subject ? "Register a version …" : "Register …"),
      h("button", { type: "button", onclick: () => { wish.level = subject ? (found.level.own ? found.level.level : "") : found.level; toggle("level")(); } }, "Compatibility …"),
      subject ? h("button", { type: "button", class: "danger", onclick: () => remove(null) }, "Delete …") : button("restore", "Restore …")],
    view: () => [
      open ? h("section", { class: "panel", "aria-label": TITLES[open] },
        h("h2", null, TITLES[open]),
        h("p", { class: "quiet" }, "Looks first: nothing changes before you agree to the table."),
        forms[open](), problem ? h("div", { class: "problem", role: "alert" }, problem) : null, plan ? shownPlan() : null) : null,
      done ? h("div", { class: "done", role: "status" }, h("p", { class: "wrap" }, visible(done.said)),
        done.undo !== null ? h("div", { class: "buttons" }, h("button", { type: "button", disabled: busy, onclick: () => restore(done.undo) }, "Undo …"), copy(done.command, "Copy the command that undoes it")) : null) : null],
  };
}
