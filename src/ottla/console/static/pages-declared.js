// What `ottla apply` would change: the files that the console was started with, beside the cluster. It only reads.

import { copy, get, h, number, quoted, table, visible } from "./ui.js";

export function declaredPage(context) {
  let found = null;
  const again = async () => { found = await get("declared", { fresh: true }); context.draw(); };
  const value = (text) => (text === null ? h("span", { class: "quiet" }, "none") : visible(text));
  const command = () => `ottla apply plan ${found.files.map(quoted).join(" ")}`;
  return {
    title: "Declared",
    every: 30000,
    state: () => found && found.asked,
    load: async (signal) => { found = await get("declared", {}, signal); },
    view: () => [
      h("div", { class: "head" }, h("h1", null, "Declared"), h("div", { class: "tools" }, h("button", { type: "button", onclick: again }, "Compare again"))),
      found ? [
        h("p", { role: "status" }, found.total ? `${number(found.total)} ${found.total === 1 ? "difference" : "differences"} from ${found.files.map(visible).join(", ")}` : found.not_read.length ? "No difference in what could be compared." : "The cluster is as declared."),
        found.not_read.length ? h("div", { class: "problem", role: "alert" }, h("strong", null, "Not compared"), " ", found.not_read.map(visible).join("; ")) : null,
        found.items.length ? table({
          caption: "What applying would change", items: found.items, key: (each) => [each.kind, each.subject, each.name].join(" "),
          columns: [
            { title: "Of", cell: (each) => each.kind },
            { title: "Subject", class: "name", cell: (each) => visible(each.subject) },
            { title: "Name", class: "wrap", cell: (each) => (each.name === null ? "" : visible(each.name)) },
            { title: "Now", class: "wrap", cell: (each) => value(each.old) },
            { title: "Declared", class: "wrap", cell: (each) => value(each.new) },
            { title: "Note", class: "wrap", cell: (each) => (each.note === null ? "" : visible(each.note)) }],
        }) : null,
        found.total > found.items.length ? h("p", { class: "quiet" }, `${number(found.total - found.items.length)} more: see the command.`) : null,
        h("p", { class: "quiet" }, "This page changes nothing. The same: ", h("code", { class: "wrap" }, command()), " ", copy(command())),
      ] : h("p", { class: "quiet" }, "Comparing the cluster with its files …"),
    ],
  };
}
