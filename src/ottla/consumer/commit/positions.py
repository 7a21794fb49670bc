"""The positions that a commit names, with the finished offsets beyond them, as many as the metadata takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.commit_marks import marked_limited
from ottla.consumer.commit.claims import handed_out_to
from ottla.consumer.commit.offset_metadata import (
    LIMIT_BYTES,
    NEARLY_FULL_BYTES,
    RELIEVED_BYTES,
    encode_finished,
)
from ottla.consumer.model.effects import Notice
from ottla.consumer.partitions.flow import FlowControl, PauseReason
from ottla.consumer.partitions.handler_rate import RateMeter
from ottla.consumer.partitions.partition import PartitionState
from ottla.records import TopicPartition

Offsets = dict[TopicPartition, tuple[int, str]]


class Positions:
    """The positions of one session. `is_at_most_once`: claimed records are committed, not finished ones."""

    __slots__ = ("_flow", "_is_at_most_once", "_limits", "_notices")

    def __init__(self, flow: FlowControl, *, is_at_most_once: bool, limits: Mapping[str, RateMeter]) -> None:
        self._flow = flow
        self._limits = limits
        self._is_at_most_once = is_at_most_once
        self._notices: list[Notice] = []

    def collect(
        self, states: Iterable[PartitionState], now_ms: int | None = None, *, is_final: bool = False
    ) -> Offsets:
        """Return the positions that changed since the last call. `is_final`: the partitions are being revoked. With
        `now_ms` the metadata says whether the handler is limited now, which `ottla groups lag` shows."""
        offsets: Offsets = {}
        for state in states:
            if state.plan.commits_in_transactions:
                continue
            state.account_progress()
            committed = self._claimed(state, is_final=is_final) if self._is_at_most_once else self._done(state)
            if committed is not None and self._limits and now_ms is not None:
                committed = self._with_limit(state, committed, now_ms)
            if committed is not None and committed != state.committed:
                state.committed = committed
                offsets[state.topic_partition] = committed
        return offsets

    def passes(self, states: Iterable[PartitionState]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the changed positions of partitions that are committed in transactions: epoch and offset."""
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
        """Remove and return the log events since the last call."""
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

    def _with_limit(self, state: PartitionState, committed: tuple[int, str], now_ms: int) -> tuple[int, str]:
        limit = self._limits.get(state.plan.name)
        offset, metadata = committed
        is_marked = limit is not None and limit.is_limited(now_ms) and len(metadata) < NEARLY_FULL_BYTES
        return offset, marked_limited(metadata) if is_marked else metadata

    def _watch_metadata(self, state: PartitionState, size_bytes: int, beyond: int) -> None:
        """Pause the partition before its commit metadata is full, and log which record holds it up; resume it later.

        While one record is unfinished, every finished one after it takes room in the metadata."""
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
