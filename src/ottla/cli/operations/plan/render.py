"""A plan as it is printed: brokers before and after with bars, the moves with their reasons."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ottla.browse.human_amounts import bytes_text
from ottla.browse.plan_items import bar, broker_loads, move_items, plan_fields, summary_line
from ottla.cli.shared.output import Column, Format, Output, say, warn

if TYPE_CHECKING:
    from ottla.admin.placement.move_plan import MovePlan


def show_plan(out: Output, schema: str, plan: MovePlan, **fields: Any) -> None:
    """Print a plan: JSON has all of it in one document, a pipe gets the moves, one a line; a terminal gets bars as
    well."""
    if out.format is Format.TABLE:
        out.items(schema, _BROKER_COLUMNS, broker_loads(plan))
        if any(len(load.disks) > 1 for load in plan.before):
            out.items(schema, _DISK_COLUMNS, list(_disks(plan)))
    out.items(schema, _MOVE_COLUMNS, move_items(plan), empty="nothing has to move", **plan_fields(plan), **fields)
    for note in plan.notes:
        say(f"note: {note}")
    for each in plan.left_out[:10]:
        warn(f"left out: {each.topic}-{each.partition}: {each.why}")
    say(summary_line(plan))


_BROKER_COLUMNS = (
    "broker",
    "rack",
    Column("bytes_before", "before", text=bytes_text),
    Column("bar_before", ""),
    Column("bytes_after", "after", text=bytes_text),
    Column("bar_after", ""),
    Column("replicas_after", "replicas"),
    Column("leaders_after", "leaders"),
)
_DISK_COLUMNS = (
    "broker",
    "disk",
    Column("before", text=bytes_text),
    Column("bar_before", ""),
    Column("after", text=bytes_text),
    Column("bar_after", ""),
)
_MOVE_COLUMNS = (
    "batch",
    "topic",
    "partition",
    Column("bytes", text=bytes_text),
    Column("old", text=lambda ids: ",".join(map(str, ids))),
    Column("new", text=lambda ids: ",".join(map(str, ids))),
    "why",
)


def _disks(plan: MovePlan) -> Iterable[dict[str, Any]]:
    highest = max((size for load in (*plan.before, *plan.after) for size in load.disks.values()), default=0) or 1
    for before, after in zip(plan.before, plan.after, strict=True):
        for path, size in before.disks.items():
            yield {
                "broker": before.id,
                "disk": path,
                "before": size,
                "bar_before": bar(size / highest),
                "after": after.disks.get(path, 0),
                "bar_after": bar(after.disks.get(path, 0) / highest),
            }
