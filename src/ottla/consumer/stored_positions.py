"""Partitions whose offsets are in a store of the handler's: the group's offsets only follow.

After the assignment such a partition is closed until its store has answered. Then it continues from the stored offset,
or from where the group or the client begins if the store has none. If the log has nothing at the stored offset, the
partition stops: where to continue is the operator's decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.consumer.assignment import Assignment
from ottla.consumer.model import events
from ottla.consumer.model.effects import Commit, Effect, FindStarts, PassOffsets
from ottla.consumer.model.run import AnyRecord
from ottla.consumer.outcomes.stopping import stop_at
from ottla.consumer.partitions.flow import FlowControl, PauseReason
from ottla.consumer.partitions.partition import AwaitedStart, PartitionState
from ottla.consumer.partitions.plan import RoutePlan
from ottla.records import TopicPartition


class StoredPositions:
    """The positions of one session's partitions that are in stores. `are_used`: whether any handler has them."""

    __slots__ = ("_assignment", "_flow", "_partitions", "_plans", "are_used")

    def __init__(
        self,
        plans: Mapping[str, RoutePlan],
        partitions: Mapping[TopicPartition, PartitionState],
        *,
        flow: FlowControl,
        assignment: Assignment,
    ) -> None:
        self._plans = plans
        self._partitions = partitions
        self._flow = flow
        self._assignment = assignment
        self.are_used = any(plan.keeps_offsets for plan in plans.values())

    def find(self, states: Sequence[PartitionState], effects: list[Effect]) -> None:
        """Close these new partitions and ask their stores where they continue."""
        for state in states:
            state.is_draining = True  # takes nothing in
            self._flow.pause(state.topic_partition, PauseReason.START)
        if states:
            effects.append(FindStarts({state.topic_partition: state.epoch for state in states}))

    def found(self, event: events.StartsFound, now_ms: int, effects: list[Effect]) -> None:
        """Open the partitions about which the stores have answered."""
        for name, epoch in event.epochs.items():
            state = self._partitions.get(name)
            if state is None or state.epoch != epoch:
                continue
            awaited, stored = state.awaited, event.starts.get(name)
            offset = stored
            if offset is None and awaited is not None:
                offset = awaited.first_fetched if awaited.committed is None else awaited.committed
            if offset is not None:
                fresh = self._assignment.restart_partition(state, offset, now_ms, effects)
                fresh.stored_start = stored
            elif awaited is not None:
                # Nothing of it was taken in, so the client is where it began.
                state.awaited, state.is_draining = None, False
                self._flow.resume(name, PauseReason.START)

    def refuses(self, state: PartitionState, records: Sequence[AnyRecord], effects: list[Effect]) -> bool:
        """Compare the first records after the start with the stored offset. Returns whether the partition stopped."""
        if state.stored_start is None or not records:
            return False
        if records[0].offset < state.stored_start:
            # The client found nothing at the stored offset, and began where auto.offset.reset says.
            self.stop_before_start(state, records[0].offset, effects)
            return True
        state.stored_start = None
        return False

    def stop_before_start(self, state: PartitionState, offset: int, effects: list[Effect]) -> None:
        """Stop a partition whose stored offset does not belong to its log, which has records at `offset`."""
        start = state.stored_start if state.stored_start is not None else state.tracker.position
        reason = (
            f"stored offset {start} is not in the log, which continues at {offset}: the topic was recreated, or the "
            "log was truncated. Set the offset (ottla store-offsets reset --store), then resume"
        )
        state.stored_start = start
        self._assignment.stop_work(state)
        stop_at(state, [], reason, effects)
        self._flow.pause(state.topic_partition, PauseReason.STOPPED)

    def find_again(self, state: PartitionState, now_ms: int, effects: list[Effect]) -> None:
        """Ask the store again about a resumed partition that had stopped before its start."""
        fresh = self._assignment.restart_partition(state, None, now_ms, effects)
        fresh.awaited = AwaitedStart(None)
        self.find([fresh], effects)

    def follow_commits(self, effects: list[Effect]) -> None:
        """Have the stores learn the offsets that this step commits for their partitions."""
        for effect in list(effects):
            if isinstance(effect, Commit):
                kept = {name: offset for name, (offset, _) in effect.offsets.items() if self._is_kept(name.topic)}
                if kept:
                    effects.append(PassOffsets(kept))

    def _is_kept(self, topic: str) -> bool:
        plan = self._plans.get(topic)
        return plan is not None and plan.keeps_offsets
