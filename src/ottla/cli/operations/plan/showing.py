"""A plan as it is printed: brokers before and after with bars, the moves with their reasons."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ottla.cli.shared.amounts import bytes_text
from ottla.cli.shared.output import Column, Format, Output, say, warn

if TYPE_CHECKING:
    from ottla.admin.placement.plan import BrokerLoad, Plan

_WIDTH = 16


def show_plan(out: Output, schema: str, plan: Plan, **fields: Any) -> None:
    """JSON has all of it in one document; a pipe gets the moves, one a line; a terminal gets the picture as well."""
    if out.format is Format.TABLE:
        out.items(schema, _BROKER_COLUMNS, _brokers(plan))
        if any(len(load.disks) > 1 for load in plan.before):
            out.items(schema, _DISK_COLUMNS, list(_disks(plan)))
    out.items(schema, _MOVE_COLUMNS, move_items(plan), empty="nothing has to move", **plan_fields(plan), **fields)
    for note in plan.notes:
        say(f"note: {note}")
    for each in plan.left_out[:10]:
        warn(f"left out: {each.topic}-{each.partition}: {each.why}")
    say(summary_line(plan))


def plan_fields(plan: Plan) -> dict[str, Any]:
    """What a plan's document has beside its moves."""
    return {
        "cluster_id": plan.cluster_id,
        "bytes_copied": plan.bytes_copied,
        "bytes_between_disks": plan.bytes_between_disks,
        "floor": {"level": plan.floor.level, "why": plan.floor.why},
        "brokers": [
            {name: value for name, value in each.items() if not name.startswith("bar")} for each in _brokers(plan)
        ],
        "notes": list(plan.notes),
        "left_out": [{"topic": each.topic, "partition": each.partition, "why": each.why} for each in plan.left_out],
    }


def summary_line(plan: Plan) -> str:
    """`copies 12.3 GiB in 40 moves; the fullest broker 1.60 → 1.05 × its fair share (1.00 can be reached)`."""
    from ottla.admin.placement.plan import fullest, leader_skew

    moves = sum(1 for move in plan.moves if move.adding)
    reorders = sum(1 for move in plan.moves if not move.adding and not move.disk_moves)
    disks = f", {bytes_text(plan.bytes_between_disks)} between disks" if plan.bytes_between_disks else ""
    return (
        f"copies {bytes_text(plan.bytes_copied)} in {moves:,} moves{disks}, reorders {reorders:,};"
        f" the fullest broker {fullest(plan.before):.2f} → {fullest(plan.after):.2f} × its fair share"
        f" ({plan.floor.level:.2f} can be reached), leaders by {plan.weighed_by} {leader_skew(plan.before):.2f} →"
        f" {leader_skew(plan.after):.2f} × the mean"
    )


_BROKER_COLUMNS = (
    Column("broker", right=True),
    Column("rack"),
    Column("bytes_before", "before", right=True, text=bytes_text),
    Column("bar_before", ""),
    Column("bytes_after", "after", right=True, text=bytes_text),
    Column("bar_after", ""),
    Column("replicas_after", "replicas", right=True),
    Column("leaders_after", "leaders", right=True),
)
_DISK_COLUMNS = (
    Column("broker", right=True),
    Column("disk"),
    Column("before", right=True, text=bytes_text),
    Column("bar_before", ""),
    Column("after", right=True, text=bytes_text),
    Column("bar_after", ""),
)
_MOVE_COLUMNS = (
    Column("batch", right=True),
    Column("topic"),
    Column("partition", right=True),
    Column("bytes", right=True, text=bytes_text),
    Column("old", text=lambda ids: ",".join(map(str, ids))),
    Column("new", text=lambda ids: ",".join(map(str, ids))),
    Column("why"),
)


def move_items(plan: Plan) -> Iterable[dict[str, Any]]:
    """An item for each partition that moves, or changes its order."""
    for move in plan.moves:
        yield {
            "batch": move.batch,
            "topic": move.topic,
            "partition": move.partition,
            "bytes": move.bytes,
            "old": list(move.old),
            "new": list(move.new),
            "why": move.why,
            "log_dirs": list(move.log_dirs),
        }


def _brokers(plan: Plan) -> Iterable[dict[str, Any]]:
    highest = max((load.level or 0.0 for load in (*plan.before, *plan.after)), default=0.0) or 1.0
    for before, after in zip(plan.before, plan.after, strict=True):
        yield {
            "broker": before.id,
            "rack": before.rack,
            "bytes_before": before.bytes,
            "bar_before": _level_bar(before, highest),
            "bytes_after": after.bytes,
            "bar_after": _level_bar(after, highest),
            "level_before": before.level,
            "level_after": after.level,
            "replicas_before": before.replicas,
            "replicas_after": after.replicas,
            "leaders_before": before.leaders,
            "leaders_after": after.leaders,
        }


def _disks(plan: Plan) -> Iterable[dict[str, Any]]:
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


def _level_bar(load: BrokerLoad, highest: float) -> str:
    return "" if load.level is None else f"{bar(load.level / highest)} {load.level:.2f}"


def bar(share: float) -> str:
    """A bar of blocks, of a fixed width."""
    full = round(min(1.0, max(0.0, share)) * _WIDTH)
    return "█" * full + "░" * (_WIDTH - full)
