"""What `ottla plan run`, `cancel`, `throttle` and `status` print: the moves and how far each is, or rates before and
after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.cli.shared.amounts import bytes_text
from ottla.cli.shared.output import Column, Output

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.admin.placement.deciding import Status
    from ottla.admin.placement.throttling import Setting

_MOVES: Final = (
    Column("topic"),
    Column("partition", right=True),
    Column("state"),
    Column("copied", right=True, text=bytes_text),
    Column("bytes", right=True, text=bytes_text),
    Column("why"),
)
_STAYING: Final = (Column("topic"), Column("partition", right=True), Column("state"), Column("replicas"), Column("why"))
_RATES: Final = (Column("broker", right=True), Column("setting"), Column("new", right=True))


def show_moves(out: Output, schema: str, items: Sequence[dict[str, Any]], *, empty: str, **fields: Any) -> None:
    """Print what `status_items` makes."""
    out.items(schema, _MOVES, items, empty=empty, **fields)


def show_staying(out: Output, statuses: Sequence[Status], *, empty: str, complete: bool) -> None:
    """Print where the replicas of each move are after a cancel: where they were, or where a move that is done put
    them."""
    from ottla.admin.placement.deciding import State

    items = [
        {**item, "replicas": list(each.move.new if each.state is State.DONE else each.move.old)}
        for each, item in zip(statuses, status_items(statuses), strict=True)
    ]
    out.items("plan.cancel/1", _STAYING, items, empty=empty, complete=complete)


def show_rates(out: Output, settings: Iterable[Setting]) -> None:
    """Print the rates that brokers will be set to."""
    items = [{"broker": int(each.resource), "setting": each.name, "new": int(each.new)} for each in settings]
    out.items("plan.throttle/1", _RATES, items)


def status_items(statuses: Iterable[Status]) -> list[dict[str, Any]]:
    """An item for each move: how far it is, and what it waits for."""
    return [
        {
            "topic": each.move.topic,
            "partition": each.move.partition,
            "state": each.state.value,
            "copied": each.copied,
            "bytes": each.move.copied,
            "why": each.why,
        }
        for each in statuses
    ]
