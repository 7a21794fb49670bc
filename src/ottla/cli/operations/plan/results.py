"""Output of `ottla plan run`, `cancel`, `throttle` and `status`: moves and their progress, or old and new rates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.browse.human_amounts import bytes_text
from ottla.browse.plan_items import broker_items, status_items
from ottla.cli.shared.output import Column, Format, Output

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.admin.placement.deciding import Status
    from ottla.admin.placement.leftovers import LeftThrottle
    from ottla.admin.placement.run_throttles import ThrottleSetting

_MOVES: Final = (
    "topic",
    "partition",
    "state",
    Column("copied", text=bytes_text),
    Column("bytes", text=bytes_text),
    "why",
)
_RECEIVING: Final = (
    "broker",
    Column("moves", "moves to it"),
    Column("copied", text=bytes_text),
    Column("bytes", text=bytes_text),
)
_STAYING: Final = ("topic", "partition", "state", "replicas", "why")
_LEFT: Final = ("kind", "resource", "setting", "old", "new", "run")
_RATES: Final = ("broker", "setting", "new")


def show_moves(out: Output, schema: str, statuses: Sequence[Status], *, empty: str, **fields: Any) -> None:
    """Print how far moves are, and in a table and in JSON the brokers that receive: a pipe has one kind of line."""
    from ottla.admin.placement.move_progress import by_broker

    brokers = [
        {name: item[name] for name in ("broker", "moves", "copied", "bytes")}
        for item in broker_items(by_broker(statuses))
    ]
    if out.format is Format.TABLE and brokers:
        out.items(schema, _RECEIVING, brokers)
    out.items(schema, _MOVES, status_items(statuses), empty=empty, brokers=brokers, **fields)


def show_staying(out: Output, statuses: Sequence[Status], *, empty: str, complete: bool) -> None:
    """Print where the replicas of each move are after a cancel: where they were, or where a move that is done put
    them."""
    from ottla.admin.placement.deciding import MoveState

    items = [
        {**item, "replicas": list(each.move.new if each.state is MoveState.DONE else each.move.old)}
        for each, item in zip(statuses, status_items(statuses), strict=True)
    ]
    out.items("plan.cancel/1", _STAYING, items, empty=empty, complete=complete)


def show_rates(out: Output, settings: Iterable[ThrottleSetting]) -> None:
    """Print the rates that brokers will be set to."""
    items = [{"broker": int(each.resource), "setting": each.name, "new": int(each.new)} for each in settings]
    out.items("plan.throttle/1", _RATES, items)


def show_left(out: Output, left: Iterable[LeftThrottle]) -> None:
    """Print throttles that were left: what is set, and what will be."""
    items = [
        {
            "kind": each.kind,
            "resource": each.resource,
            "setting": each.name,
            "old": each.now,
            "new": each.then,
            "run": each.run or None,
        }
        for each in left
    ]
    out.items("plan.throttle-clear/1", _LEFT, items, empty="no throttle is left")
