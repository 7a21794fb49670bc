// Who may do what, and how much of it: ACLs, quotas and SCRAM users.

import { changePart } from "./changes.js";
import { get, h, number, pager, table, visible } from "./ui.js";

const ACL = ["principal", "permission", "operation", "resource", "name", "pattern", "host"];

export function accessPage(context) {
  const chosen = { match: context.params.get("match") || "", page: Number(context.params.get("page")) || 0 };
  let found = null;
  let typing = null;
  const change = (changes) => { Object.assign(chosen, changes); context.remember(chosen); context.reload(); };
  const done = () => context.reload();
  const parts = {
    acl: changePart(context, { title: "Create ACLs", kind: "acls.create", action: "Create them", done, fields: [
      ["principal", "Principal", "User:billing"], ["role", "For", "", ["consumer", "producer", "operations"]], ["topics", "Topics", "orders payments"], ["groups", "Groups", "billing"],
      ["transactional_ids", "Transactional ids", ""], ["operations", "Operations", "read describe"], ["pattern", "Names are", "", ["literal", "prefixed"]], ["permission", "Permission", "", ["allow", "deny"]], ["host", "Only from", "10.0.0.0/8"]],
      initial: { role: "consumer" } }),
    noAcl: changePart(context, { title: "Delete an ACL", kind: "acls.delete", action: "Delete it", danger: true, done }),
    quota: changePart(context, { title: "Set quotas", kind: "quotas.set", action: "Change them", done, fields: [
      ["user", "User", "<default>: all others"], ["client-id", "Client id", ""], ["ip", "Address", ""], ["set", "Set", "producer_byte_rate=1MB", "lines"], ["remove", "Remove", "consumer_byte_rate", "lines"]] }),
    user: changePart(context, { title: "Set a password", kind: "users.set", action: "Set it", done, fields: [
      ["user", "User", "billing"], ["password", "Password", "", "password"], ["mechanism", "Mechanism", "", ["SCRAM-SHA-512", "SCRAM-SHA-256"]]] }),
    noUser: changePart(context, { title: "Delete a user", kind: "users.delete", action: "Delete it", danger: true, done }),
  };
  const remove = (part, label, parameters) => !context.session.may_write ? null
    : h("button", { type: "button", class: "small", "aria-label": label, onclick: () => part.start(parameters) }, "Delete …");
  const head = (title, part) => h("div", { class: "head" }, h("h2", null, title), part.button() ? h("div", { class: "tools" }, part.button()) : null);
  const problem = (part) => found.problems[part] ? h("p", { class: "quiet" }, visible(found.problems[part])) : null;

  return {
    title: "Access",
    load: async (signal) => { found = await get("access", chosen, signal); },
    stop: () => clearTimeout(typing),
    view: () => [
      h("div", { class: "head" }, h("h1", null, "Access"), h("div", { class: "tools" },
        h("input", { type: "search", value: chosen.match, placeholder: "Principal, name, orders*, /regex/", "aria-label": "Filter access", maxlength: "300",
          oninput: (event) => { const match = event.target.value; clearTimeout(typing); typing = setTimeout(() => change({ match, page: 0 }), 200); } }))),
      found ? [
        head("ACLs", parts.acl), parts.acl.view(), parts.noAcl.view(), problem("acls"),
        found.problems.acls ? null : [table({
          caption: "ACLs", items: found.acls.items, key: (each) => ACL.map((name) => each[name]).join(" "), empty: chosen.match ? "No ACL matches." : "There are no ACLs.",
          columns: [
            { title: "Principal", class: "name", cell: (each) => visible(each.principal) },
            { title: "May", cell: (each) => h("span", { class: each.permission === "deny" ? "bad" : "" }, each.permission) },
            { title: "Operation", cell: (each) => each.operation },
            { title: "Of", cell: (each) => each.resource },
            { title: "Name", class: "name", cell: (each) => visible(each.name) + (each.pattern === "prefixed" ? " …" : "") },
            { title: "From", cell: (each) => each.host === "*" ? "anywhere" : visible(each.host) },
            { title: "", cell: (each) => remove(parts.noAcl, `Delete ${each.permission} ${each.principal} ${each.operation} ${each.name}`, Object.fromEntries(ACL.map((name) => [name, each[name]]))) }],
        }), found.acls.total ? pager(found.acls, (page) => change({ page })) : null],
        head("Quotas", parts.quota), parts.quota.view(), problem("quotas"),
        found.problems.quotas ? null : table({
          caption: "Quotas", items: found.quotas, key: (each) => [each.user, each["client-id"], each.ip, each.quota].join(" "), empty: "There are no quotas.",
          columns: [
            { title: "User", class: "name", cell: (each) => each.user === undefined ? "–" : visible(each.user) },
            { title: "Client id", cell: (each) => each["client-id"] === undefined ? "–" : visible(each["client-id"]) },
            { title: "Address", cell: (each) => each.ip === undefined ? "–" : visible(each.ip) },
            { title: "Quota", cell: (each) => visible(each.quota) },
            { title: "Value", right: true, cell: (each) => number(each.value) }],
        }),
        head("Users", parts.user), parts.user.view(), parts.noUser.view(), problem("users"),
        found.problems.users ? null : table({
          caption: "Users", items: found.users, key: (each) => `${each.user} ${each.mechanism}`, empty: "There are no SCRAM users.",
          columns: [
            { title: "User", class: "name", cell: (each) => visible(each.user) },
            { title: "Mechanism", cell: (each) => each.mechanism },
            { title: "Iterations", right: true, cell: (each) => number(each.iterations) },
            { title: "", cell: (each) => remove(parts.noUser, `Delete ${each.user} ${each.mechanism}`, { user: each.user, mechanism: each.mechanism }) }],
        }),
      ] : h("p", { class: "quiet" }, "Reading …"),
    ],
  };
}
