"""Which positions a commit names, with what is done beyond them; and what to do before that is too much to name."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.consumer.commit.claims import handed_out_to
from ottla.consumer.commit.offset_metadata import LIMIT_BYTES, NEARLY_FULL_BYTES, RELIEVED_BYTES, encode_finished
from ottla.consumer.model.effects import Notice
from ottla.consumer.partitions.flow import FlowControl, PauseReason
from ottla.consumer.partitions.partition import PartitionState
from ottla.records import TopicPartition

Offsets = dict[TopicPartition, tuple[int, str]]


class Positions:
    """What one session commits. `is_at_most_once`: what is claimed, instead of what is done."""

    __slots__ = ("_flow", "_is_at_most_once", "_notices")

    def __init__(self, flow: FlowControl, *, is_at_most_once: bool) -> None:
        self._flow = flow
        self._is_at_most_once = is_at_most_once
        self._notices: list[Notice] = []

    def collect(self, states: Iterable[PartitionState], *, is_final: bool = False) -> Offsets:
        """The positions that changed since they were named last. `is_final`: the partitions go away."""
        offsets: Offsets = {}
        for state in states:
            if state.plan.commits_in_transactions:
                continue
            state.account_progress()
            committed = self._claimed(state, is_final=is_final) if self._is_at_most_once else self._done(state)
            if committed is not None and committed != state.committed:
                state.committed = committed
                offsets[state.topic_partition] = committed
        return offsets

    def passes(self, states: Iterable[PartitionState]) -> dict[TopicPartition, tuple[int, int]]:
        """The positions of partitions that are committed in transactions, where they changed: epoch and offset."""
        passed: dict[TopicPartition, tuple[int, int]] = {}
        for state in states:
            position = state.tracker.position
            if not state.plan.commits_in_transactions or position is None or not state.tracker.is_worth_a_commit:
                continue
            if state.committed != (position, ""):
                state.committed = (position, "")
                passed[state.topic_partition] = (state.epoch, position)
        return passed

    def take_notices(self) -> list[Notice]:
        """What there is to say since the last time."""
        notices, self._notices = self._notices, []
        return notices

    def _done(self, state: PartitionState) -> tuple[int, str] | None:
        tracker = state.tracker
        position = tracker.position
        if position is None or not tracker.is_worth_a_commit:
            return None
        beyond = tracker.finished_beyond() if tracker.finished_beyond_count else []
        metadata = encode_finished(beyond, position) if beyond else ""
        self._watch_metadata(state, len(metadata), len(beyond))
        return position, metadata

    def _claimed(self, state: PartitionState, *, is_final: bool) -> tuple[int, str] | None:
        position = handed_out_to(state) if is_final else state.claimed
        return None if position is None or state.claimed is None else (position, "")

    def _watch_metadata(self, state: PartitionState, size_bytes: int, beyond: int) -> None:
        """One record that is not done lets everything behind it pile up in the commit metadata. Before that is full,
        take in no more of the partition, and say which record it is; go on when there is room again."""
        name = state.topic_partition
        is_paused = self._flow.is_paused_for(name, PauseReason.METADATA)
        if is_paused and size_bytes <= RELIEVED_BYTES:
            self._flow.resume(name, PauseReason.METADATA)
        elif not is_paused and size_bytes >= NEARLY_FULL_BYTES:
            self._flow.pause(name, PauseReason.METADATA)
            fields = {
                "partition": str(name),
                "offset": state.tracker.position,
                "finished_beyond": beyond,
                "size_bytes": size_bytes,
                "limit_bytes": LIMIT_BYTES,
            }
            self._notices.append(Notice("commit_metadata_nearly_full", "warning", fields))
