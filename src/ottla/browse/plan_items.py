"""The items of `ottla plan` documents, made of plans and of how far they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ottla.browse.human_amounts import bytes_text

if TYPE_CHECKING:
    from ottla.admin.placement.deciding import Status
    from ottla.admin.placement.move_plan import BrokerLoad, MovePlan
    from ottla.admin.placement.move_progress import BrokerProgress


_WIDTH = 16


def plan_fields(plan: MovePlan) -> dict[str, Any]:
    """Return the fields of a plan's document beside its moves."""
    return {
        "cluster_id": plan.cluster_id,
        "bytes_copied": plan.bytes_copied,
        "bytes_between_disks": plan.bytes_between_disks,
        "floor": {"level": plan.floor.level, "why": plan.floor.why},
        "brokers": [
            {name: value for name, value in each.items() if not name.startswith("bar")} for each in broker_loads(plan)
        ],
        "notes": list(plan.notes),
        "left_out": [{"topic": each.topic, "partition": each.partition, "why": each.why} for each in plan.left_out],
    }


def summary_line(plan: MovePlan) -> str:
    """`copies 12.3 GiB in 40 moves; the fullest broker 1.60 → 1.05 × its fair share (1.00 can be reached)`."""
    from ottla.admin.placement.move_plan import fullest, leader_skew

    moves = sum(1 for move in plan.moves if move.adding)
    reorders = sum(1 for move in plan.moves if not move.adding and not move.disk_moves)
    disks = f", {bytes_text(plan.bytes_between_disks)} between disks" if plan.bytes_between_disks else ""
    return (
        f"copies {bytes_text(plan.bytes_copied)} in {moves:,} moves{disks}, reorders {reorders:,};"
        f" the fullest broker {fullest(plan.before):.2f} → {fullest(plan.after):.2f} × its fair share"
        f" ({plan.floor.level:.2f} can be reached), leaders by {plan.weighed_by} {leader_skew(plan.before):.2f} →"
        f" {leader_skew(plan.after):.2f} × the mean"
    )


def move_items(plan: MovePlan) -> Iterable[dict[str, Any]]:
    """Return an item for each partition that moves, or changes its order."""
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


def broker_loads(plan: MovePlan) -> Iterable[dict[str, Any]]:
    """Return an item for each broker: what it holds before and after the plan, with bars."""
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


def _level_bar(load: BrokerLoad, highest: float) -> str:
    return "" if load.level is None else f"{bar(load.level / highest)} {load.level:.2f}"


def bar(share: float) -> str:
    """Return a bar of blocks, of a fixed width."""
    full = round(min(1.0, max(0.0, share)) * _WIDTH)
    return "█" * full + "░" * (_WIDTH - full)


def status_items(statuses: Iterable[Status]) -> list[dict[str, Any]]:
    """Return an item for each move: its progress, and the reason why it waits."""
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


def broker_items(brokers: Iterable[BrokerProgress]) -> list[dict[str, Any]]:
    """Return an item for each receiving broker: how much of its data has arrived."""
    return [
        {
            "broker": each.broker,
            "moves": each.moves,
            "copied": each.copied,
            "bytes": each.bytes,
            "bytes_per_second": None if each.rate is None else round(each.rate),
            "left_s": None if each.left_s is None else round(each.left_s),
        }
        for each in brokers
    ]
