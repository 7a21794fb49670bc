// A change that is shown before it is done: a form, what would change, consent, and the change itself.

import { h, number, post, Problem, say, table, visible } from "./ui.js";

// `kind` names the change, `given` are parameters that are not asked for, `fields` are [name, title, placeholder, kind?]:
// the kind is "lines", "password", or the list of what can be chosen.
// `running(true)` is called before the change, `running(false)` if it fails, and `done(changed)` behind it.
export function changePart(context, { title, kind, given = {}, fields = [], initial = {}, danger = false, action, done, running = () => {}, key }) {
  let open = false;
  let plan = null;
  let problem = null;
  let busy = false;
  const entered = { ...initial };
  const agreed = { typed: "", confirm: "" };

  async function run(act) {
    busy = true;
    problem = null;
    context.draw();
    try { await act(); } catch (error) { if (!(error instanceof Problem)) throw error; problem = error.message; }
    busy = false;
    context.draw();
  }
  const parameters = () => Object.fromEntries(Object.entries({ ...entered, ...given }).filter(([, value]) => value !== ""));
  const preview = () => run(async () => {
    plan = null;
    Object.assign(agreed, { typed: "", confirm: "" });
    plan = await post("change/plan", { kind, ...parameters() });
  });
  const apply = () => run(async () => {
    const shown = plan;
    plan = null;
    running(true);
    let changed;
    try { changed = await post("change/apply", { plan: shown.plan, ...agreed }); } catch (error) { running(false); throw error; }
    for (const name of Object.keys(entered)) delete entered[name]; // a password among them
    Object.assign(entered, initial);
    open = false;
    say(changed.done);
    await done(changed);
  });
  const toggle = () => { open = !open; plan = null; problem = null; context.draw(); if (open && !fields.length) preview(); };
  const shown = (value) => value === null ? h("i", null, "none") : typeof value === "number" ? number(value) : visible(value);
  const input = (of, name, label, placeholder, type) => h("label", { key: name }, label, h("input", {
    type: type || "text", value: of[name] || "", placeholder: placeholder || "", maxlength: "2000", spellcheck: "false", autocomplete: type === "password" ? "new-password" : "off", oninput: (event) => { of[name] = event.target.value; context.draw(); } }));
  const choice = (name, label, values) => h("label", { key: name }, label, h("select", { value: entered[name] || values[0], onchange: (event) => { entered[name] = event.target.value; } },
    values.map((each) => h("option", { value: each }, each))));
  const field = ([name, label, placeholder, of]) => Array.isArray(of) ? choice(name, label, of) : of !== "lines" ? input(entered, name, label, placeholder, of)
    : h("label", { key: name, class: "wide" }, label, h("textarea", { rows: "3", value: entered[name] || "", placeholder, maxlength: "10000", spellcheck: "false", oninput: (event) => { entered[name] = event.target.value; } }));
  const isAgreed = () => !busy && (!plan.typed || agreed.typed === plan.typed);

  return {
    start: (parameters) => { Object.assign(given, parameters); open = true; problem = null; preview(); },
    button: () => !context.session.may_write ? null
      : h("button", { type: "button", key: key || kind, "aria-expanded": String(open), onclick: toggle }, `${title} …`),
    view: () => !open ? null : h("section", { class: "panel", key: `panel ${key || kind}`, "aria-label": title },
      h("h2", null, title),
      fields.length ? h("form", { class: "fields", onsubmit: (event) => { event.preventDefault(); preview(); } },
        fields.map(field),
        h("div", { class: "buttons" }, h("button", { type: "submit", disabled: busy }, "Show what would change"))) : null,
      problem ? h("div", { class: "problem", role: "alert" }, problem) : null,
      plan ? [
        table({
          caption: "What would change", items: plan.items, key: (each) => each.name, empty: "Nothing to change.",
          columns: [
            { title: "What", class: "name", cell: (each) => visible(each.name) },
            { title: "Now", class: "wrap", cell: (each) => shown(each.old) },
            { title: "New", class: "wrap", cell: (each) => shown(each.new) }],
        }),
        plan.notes.map((note) => h("p", { key: note }, visible(note))),
        plan.plan ? h("div", { class: "buttons" },
          plan.typed ? input(agreed, "typed", `Type ${visible(plan.typed)} to agree`, plan.typed) : null,
          context.session.asks_name ? input(agreed, "confirm", `Type ${context.session.name} to agree`, context.session.name) : null,
          h("button", { type: "button", class: danger ? "main danger" : "main", disabled: !isAgreed(), onclick: apply }, action)) : null,
      ] : null),
  };
}
