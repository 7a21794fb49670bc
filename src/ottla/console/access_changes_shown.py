"""ACLs, quotas and SCRAM users: listed, and changed after they were shown. No password is in an answer or a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from ottla.admin.operations.acl_changes import OPERATIONS, Acl, AclsRefused
from ottla.admin.operations.scram_changes import MECHANISMS
from ottla.browse.access_items import (
    DEFAULT_ENTITY,
    KINDS,
    checked_password,
    entity_text,
    existing_user,
    found_user,
    quota_changes,
    quota_item,
    quota_number,
    user_item,
)
from ottla.browse.acl_options import Options, what_to_create
from ottla.browse.human_amounts import moment
from ottla.config.pairs import parse_pairs
from ottla.console.change_plans import Planner, ShownChange, ShownRow, lines_of, row
from ottla.console.cluster_pages import matcher
from ottla.console.query import Query
from ottla.console.state import ConsoleState, page_of
from ottla.errors import InputError
from ottla.wire_client.errors import BrokerRefused
from ottla_wire.protocol import ErrorCode

_MOST_SHOWN: Final = 5_000
_ITERATIONS: Final = 8_192
_FIELDS: Final = tuple(Acl.__dataclass_fields__)


def access(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return ACLs, quotas and users, as far as the login may see them."""
    match = query.text("match", most=300)
    wanted = matcher(match)
    page, size = query.paging()
    query.done()
    problems: dict[str, str] = {}

    def read(part: str, ask: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        try:
            return ask()
        except AclsRefused as error:
            is_off = error.code is ErrorCode.SECURITY_DISABLED
            problems[part] = "The brokers have no authorizer, so there are no ACLs." if is_off else str(error)
        except BrokerRefused as error:
            problems[part] = str(error)
        return []

    acls = read("acls", lambda: [asdict(each) for each in console.admin.find_acls()])
    quotas = read("quotas", lambda: list(map(quota_item, console.admin.find_quotas())))
    users = read("users", lambda: list(map(user_item, console.admin.find_scram_users())))
    shown = [each for each in acls if wanted(str(each["principal"])) or wanted(str(each["name"]))]
    return {
        "schema": "ottla.console.access/1",
        "at": moment(console.now_ms()),
        "acls": page_of(shown, page=page, size=size),
        "quotas": [each for each in quotas if any(wanted(str(each.get(kind, ""))) for kind in KINDS)][:_MOST_SHOWN],
        "users": [each for each in users if wanted(str(each["user"]))][:_MOST_SHOWN],
        "problems": problems,
    }


def create_acls(console: ConsoleState, query: Query) -> ShownChange:
    """Plan ACLs: for a producer or a consumer, or of single operations. Names are separated by spaces."""
    principal = query.needed("principal")
    role = query.one_of("role", ("producer", "consumer", "operations"), "operations")
    denies = query.one_of("permission", ("allow", "deny"), "allow") == "deny"
    topics, groups, transactional_ids, operations = (
        tuple((query.text(name) or "").split()) for name in ("topics", "groups", "transactional_ids", "operations")
    )
    pattern = query.one_of("pattern", ("literal", "prefixed"), "literal")
    host = query.text("host", most=300)
    query.done()
    for each in operations:
        if each not in OPERATIONS:
            raise InputError(f"operations: found {each[:60]!r}, wanted some of {', '.join(OPERATIONS)}")
    hosts = () if host is None else (host,)
    acls = what_to_create(
        Options(
            topics=topics,
            groups=groups,
            transactional_ids=transactional_ids,
            operations=operations,
            pattern=pattern,
            allowed=() if denies else (principal,),
            denied=(principal,) if denies else (),
            allowed_hosts=() if denies else hosts,
            denied_hosts=hosts if denies else (),
            producer=role == "producer",
            consumer=role == "consumer",
        )
    )

    def missing() -> list[Acl]:
        there = set(console.admin.find_acls())
        return [each for each in acls if each not in there]

    def rows() -> tuple[ShownRow, ...]:
        return tuple(row(str(each), None, each.permission) for each in missing())

    return ShownChange(
        what="acls.create",
        subject=principal,
        rows=rows(),
        check=rows,
        run=lambda: console.admin.create_acls(*missing()),
        notes=("A rule that denies overrides every one that allows.",) if denies else (),
        done="The ACLs are created.",
    )


def delete_acl(console: ConsoleState, query: Query) -> ShownChange:
    """Plan the deletion of one ACL, which is named by all its fields."""
    acl = Acl(**{name: query.needed(name) for name in _FIELDS})
    query.done()

    def rows() -> tuple[ShownRow, ...]:
        return tuple(row(str(each), each.permission, None) for each in console.admin.find_acls(acl) if each == acl)

    return ShownChange(
        what="acls.delete",
        subject=str(acl.principal),
        rows=rows(),
        check=rows,
        run=lambda: console.admin.delete_acls(acl),
        notes=("Clients that need it are refused from now on.",) if acl.permission == "allow" else (),
        done="The ACL is deleted.",
    )


def set_quotas(console: ConsoleState, query: Query) -> ShownChange:
    """Plan quotas of one entity, to set (`set`: lines QUOTA=VALUE) and to remove (`remove`: lines QUOTA)."""
    named = {kind: query.text(kind, most=1_000) for kind in KINDS}
    lines, removed = lines_of(query.text("set")), lines_of(query.text("remove"))
    query.done()
    entity = {kind: None if name == DEFAULT_ENTITY else name for kind, name in named.items() if name is not None}
    if not entity:
        raise InputError(f"found no entity, wanted a user, a client id or an address; {DEFAULT_ENTITY} for all others")
    pairs = parse_pairs(lines, option="set", wanted="QUOTA=VALUE", example="producer_byte_rate=1MB")
    values: dict[str, float | None] = {name: quota_number(name, text) for name, text in pairs.items()}
    values |= dict.fromkeys(removed)
    if not values:
        raise InputError("found nothing to change, wanted a line as producer_byte_rate=1MB, or a quota to remove")

    def rows() -> tuple[ShownRow, ...]:
        found = quota_changes(console.admin, entity, values)
        return tuple(row(each["quota"], each["old"], each["new"]) for each in found)

    return ShownChange(
        what="quotas.set",
        subject=entity_text(entity),
        rows=rows(),
        check=rows,
        run=lambda: console.admin.alter_quotas(entity, values),
        done="The quotas are changed.",
    )


def set_user(console: ConsoleState, query: Query) -> ShownChange:
    """Plan the password of a user, new or in place of the one before. The password stays in this process."""
    user, mechanism = query.needed("user"), _mechanism(query)
    password = checked_password(query.needed("password"))
    query.done()

    def rows() -> tuple[ShownRow, ...]:
        found = found_user(console.admin, user, mechanism)
        old = None if found is None else f"a password, {found.iterations} iterations"
        return (row(f"{user}, {mechanism}", old, f"a new password, {_ITERATIONS} iterations"),)

    shown = rows()
    is_new = shown[0]["old"] is None
    return ShownChange(
        what="users.create" if is_new else "users.rotate",
        subject=user,
        rows=shown,
        check=rows,
        run=lambda: console.admin.set_scram_user(user, mechanism, password=password, iterations=_ITERATIONS),
        notes=() if is_new else ("Logins with the old password are refused at once. Connections that are open stay.",),
        done=f"{user} has a new password.",
    )


def delete_user(console: ConsoleState, query: Query) -> ShownChange:
    """Plan the deletion of a user's password for a mechanism. The user's name has to be typed."""
    user, mechanism = query.needed("user"), _mechanism(query)
    query.done()

    def rows() -> tuple[ShownRow, ...]:
        found = existing_user(console.admin, user, mechanism)
        return (row(f"{user}, {mechanism}", f"a password, {found.iterations} iterations", None),)

    return ShownChange(
        what="users.delete",
        subject=user,
        rows=rows(),
        check=rows,
        run=lambda: console.admin.delete_scram_user(user, mechanism),
        typed=user,
        notes=("Logins are refused at once. Connections that are open stay.",),
        done=f"{user} cannot log in with {mechanism} any more.",
    )


def _mechanism(query: Query) -> str:
    return query.one_of("mechanism", tuple(MECHANISMS), "SCRAM-SHA-512")


ACCESS_PLANNERS: Final[dict[str, Planner]] = {
    "acls.create": create_acls,
    "acls.delete": delete_acl,
    "quotas.set": set_quotas,
    "users.set": set_user,
    "users.delete": delete_user,
}
