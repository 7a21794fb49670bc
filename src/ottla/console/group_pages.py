"""Groups, and a reset that is shown before it is done. Lag is asked for only of the groups that are shown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from ottla.admin import GroupInfo, ResetPlan
from ottla.admin.operations.offset_resets import load_undo, refuse_members
from ottla.browse.control_api import call
from ottla.browse.group_items import (
    group_detail,
    group_item,
    lag_item,
    lagging,
    member_items,
    next_unread,
    unread_since,
)
from ottla.browse.human_amounts import moment
from ottla.browse.reset_items import parse_to, reset_items, undo_path
from ottla.browse.topic_partitions import parse_topics
from ottla.console.cluster_pages import matcher
from ottla.console.query import Query
from ottla.console.state import ConsoleState, page_of
from ottla.errors import InputError

PAGE: Final = 50
_MOST_PAGE: Final = 200
_SORTS: Final = ("name", "state", "type", "lag")
_MOST_AGES: Final = 200
_MOST_SORTED_BY_LAG: Final = 1_000
_CONTROL_S: Final = 15.0


def groups(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return a page of groups. `sort=lag` asks for the lag of all that match, and refuses where these are too many."""
    match = query.text("match", most=300)
    wanted = matcher(match)
    state = query.text("state", most=50)
    sort = query.one_of("sort", _SORTS, "name")
    is_reversed = query.flag("reverse")
    page, size = query.paging(size=PAGE, most=_MOST_PAGE)
    query.done()

    def found() -> list[GroupInfo]:
        there = [
            group
            for group in console.admin.list_groups()
            if wanted(group.group_id) and (state is None or group.state.casefold() == state.casefold())
        ]
        return sorted(there, key=lambda group: group.group_id)

    question = ("groups", match, state, sort, is_reversed, page, size)
    return console.answers.of(question, lambda: _groups(console, found(), sort, is_reversed, page, size))


def _groups(
    console: ConsoleState, found: list[GroupInfo], sort: str, is_reversed: bool, page: int, size: int
) -> dict[str, Any]:
    if sort == "lag":
        if len(found) > _MOST_SORTED_BY_LAG:
            raise InputError(
                f"sort: found {len(found):,} groups, wanted at most {_MOST_SORTED_BY_LAG:,} to sort by lag: filter them"
            )
        items = _with_lag(console, found)
        # Those of which it is not known may be the furthest behind.
        items.sort(key=_by_lag, reverse=not is_reversed)
        return {
            "schema": "ottla.console.groups/1",
            "at": moment(console.now_ms()),
            **page_of(items, page=page, size=size),
        }
    if sort in ("state", "type"):
        found.sort(key=lambda group: str(getattr(group, sort)))
    if is_reversed:
        found.reverse()
    shown = _with_lag(console, found[page * size : (page + 1) * size])
    return {
        "schema": "ottla.console.groups/1",
        "at": moment(console.now_ms()),
        "total": len(found),
        "page": page,
        "size": size,
        "items": shown,
    }


def _by_lag(item: Mapping[str, Any]) -> float:
    if item["lag"] is not None:
        return float(item["lag"])
    return -1.0 if item["lag_at_least"] is None else math.inf


def _with_lag(console: ConsoleState, found: list[GroupInfo]) -> list[dict[str, Any]]:
    names = [group.group_id for group in found]
    lags = {}
    if names:
        try:
            lags = {each.group_id: each for each in console.admin.group_lag(*names)}
        except InputError:  # one was deleted meanwhile, or may not be described: each for itself
            for name in names[:PAGE]:
                try:
                    (lags[name],) = console.admin.group_lag(name)
                except InputError:
                    continue
    return [group_item(group, lags.get(group.group_id), with_lag=True) for group in found]


def group(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return one group: members, lag in records and in time."""
    name = query.needed("name")
    query.done()
    return console.answers.of(("group", name), lambda: _group(console, name))


def _group(console: ConsoleState, name: str) -> dict[str, Any]:
    (fact,) = console.admin.describe_groups(name)
    (behind,) = console.admin.group_lag(name)
    ages: dict[tuple[str, int, int], int] = {}
    unread = lagging([behind])
    if 0 < len(unread) <= _MOST_AGES:
        ages = unread_since(unread, console.cluster)
    now_ms = console.now_ms()
    partitions = []
    for each in behind.partitions:
        since = ages.get((each.topic, each.partition, next_unread(each)))
        partitions.append(
            {
                **lag_item(each),
                "unread_since": moment(since),
                "age_ms": None if since is None else max(0, now_ms - since),
            }
        )
    return {
        "schema": "ottla.console.group/1",
        "at": moment(now_ms),
        **group_detail(fact, behind),
        "idle_members": sum(1 for member in fact.members or () if not member.partitions),
        "member_list": member_items(fact),
        "partitions": partitions,
        "leases": _leases(console, name) if fact.type == "Share" else None,
    }


def _leases(console: ConsoleState, name: str) -> list[dict[str, Any]] | None:
    """Return the records of a share group that are in flight, by partition. Only the embedded broker reports them,
    through its control API."""
    if console.choices.control is None:
        return None
    found: list[dict[str, Any]] = call(
        console.choices.control, "GET", "/shares", query={"group": name}, timeout_s=_CONTROL_S
    )["partitions"]
    return found


def plan_reset(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return the plan of a reset. Changes nothing; `apply_reset` takes its number."""
    name = query.needed("group")
    to = query.text("to", most=60)
    shift = query.number("shift", None, least=-(2**62), most=2**62)
    topics = query.texts("topics")
    query.done()
    if (to is None) == (shift is None):
        raise InputError("found " + ("neither" if to is None else "both") + ", wanted one of to and shift")
    where = None if to is None else parse_to(to)
    plan = console.admin.plan_reset(name, to=where, shift=shift, topics=parse_topics(topics) if topics else None)
    return _shown(console, plan)


def plan_restore(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return the plan that restores a group from the content of an undo file."""
    from ottla.admin.operations.offset_resets import plan_restore as steps

    content = query.text("content", most=1_000_000)
    query.done()
    if content is None:
        raise InputError("content: found nothing, wanted the content of an undo file")
    saved = load_undo(content.encode("utf-8", "replace"), source="the undo file")
    return _shown(console, console.admin.carry_out(steps(saved, at_ms=console.now_ms())))


def apply_reset(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Carry out a plan that was shown. What was committed before is in a file before anything changes."""
    number = query.number("plan", None, least=1, most=2**53)
    console.agree(query)
    plan = console.plans.take(number, ResetPlan)
    refuse_members(plan.group_id, plan.members)
    path = undo_path(None, plan.group_id, plan.at_ms, folder=console.choices.folder)
    moves = [move for move in plan.moves if move.is_change]
    console.audit(
        "groups.reset",
        plan.group_id,
        before={f"{move.topic}-{move.partition}": move.committed for move in moves},
        after={f"{move.topic}-{move.partition}": move.new for move in moves},
    )
    try:
        console.admin.apply_reset(plan, undo_file=path)
    finally:
        console.answers.forget(("group", plan.group_id))
    return {
        "schema": "ottla.console.reset/1",
        "group": plan.group_id,
        "changed": len(moves),
        "undo_file": str(path),
        "undo": path.read_text(encoding="utf-8"),
        "command": f"ottla groups restore {path.name}",
    }


def _shown(console: ConsoleState, plan: ResetPlan) -> dict[str, Any]:
    changes = [move for move in plan.moves if move.is_change]
    return {
        "schema": "ottla.groups.reset/1",
        "group": plan.group_id,
        "plan": console.plans.keep(plan) if changes else None,
        "members": list(plan.members),
        "changes": len(changes),
        "items": reset_items(plan),
    }
