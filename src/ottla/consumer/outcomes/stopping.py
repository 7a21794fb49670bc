"""Stops a partition until it is resumed: no declared policy can take its record."""

from __future__ import annotations

from ottla.consumer.model.effects import Effect, Notice
from ottla.consumer.model.run import AnyRecord
from ottla.consumer.outcomes.notices import trace_fields
from ottla.consumer.partitions.partition import PartitionState, StoppedAt


def stop_at(
    state: PartitionState, group: list[AnyRecord], reason: str, effects: list[Effect], *, trace: str = ""
) -> None:
    """Hold the partition at these records until it is resumed. `trace`: the handler's traceback."""
    if group:
        state.lanes.hold(group)
    if state.stopped is None:
        offset = group[0].offset if group else state.tracker.position or 0
        state.stopped = StoppedAt(reason=reason, offset=offset)
        fields = {"partition": str(state.topic_partition), "offset": offset, "reason": reason}
        effects.append(Notice("partition_stopped", "error", {**fields, **trace_fields(trace)}))
    if group:
        state.stopped.groups.append(group)
