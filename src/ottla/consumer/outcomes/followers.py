"""Records that must be handled after an earlier record of their key, which is in a later level of its retry chain.

While the earlier record is in a retry topic with a short delay (at most `WAIT_MS`), they wait where they are. Otherwise
they are written to the next retry topic, behind it. Each of those writes waits for the one before, so that writing all
of them would be slow, and under a steady load the key would never leave the retry topics. A record that has waited for
`WAIT_MS` is written after all, and so is every one that waits once half of its partition's buffer is full: other keys
must not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.consumer.model.effects import Effect, Notice
from ottla.consumer.model.run import AnyRecord, Run
from ottla.consumer.model.timers import At
from ottla.consumer.outcomes.failure_writer import FailureWriter
from ottla.consumer.partitions.flow import FlowControl
from ottla.consumer.partitions.partition import PartitionState
from ottla.consumer.partitions.retry_chain import RetryChain, RetryLevel
from ottla.records import TopicPartition

WAIT_MS = 5_000
"""How long a record waits for an earlier one of its key, and the longest delay of a retry topic that is waited for.
Meanwhile the committed offset stays at the first record that waits. After a crash the records behind it are handled
again, except those that the offset's metadata names as done."""


class Followers:
    """The records of one session that wait so. `activate` gives a partition its turn."""

    __slots__ = ("_activate", "_at", "_flow", "_partitions", "_writer")

    def __init__(
        self,
        partitions: Mapping[TopicPartition, PartitionState],
        *,
        flow: FlowControl,
        writer: FailureWriter,
        at: At,
        activate: Callable[[PartitionState], None],
    ) -> None:
        self._partitions = partitions
        self._flow = flow
        self._writer = writer
        self._at = at
        self._activate = activate

    def hold_back(self, state: PartitionState, run: Run, now_ms: int, effects: list[Effect]) -> Run | None:
        """Take the followers out of a run: they wait, or are written to the next retry topic. Returns what is left of
        the run, or None."""
        level = state.level
        if level is None or not level.chain.holds_any(level.index):
            return run
        held = [record for record in run.records if level.chain.is_held(record.raw_key, level.index)]
        if not held:
            return run
        diverted = [record for record in held if not self._waits(state, level, record, now_ms)]
        if diverted:
            self._divert_to_retry_topic(state, level, diverted, now_ms, effects)
        left = {record.offset for record in run.records} - {record.offset for record in held}
        run.records = [record for record in run.records if record.offset in left]
        if not run.records or not state.lanes.keep_order:
            state.lanes.end_run(held, ())
        if level.followers and self._is_half_full(state):
            for key in list(level.followers):
                self._stop_waiting(state, level, key)
        return run if run.records else None

    def freed(self, chain: RetryChain, key: bytes) -> None:
        """Hand out the followers of a key of which a level has no record any more, where no later one has either."""
        for level in chain.levels:
            if level is None or not (key in level.followers or key in level.impatient):
                continue
            if chain.is_held(key, level.index):
                continue
            level.impatient.discard(key)
            state = self._partitions.get(chain.partition_of(level.index))
            if state is not None and state.level is level and key in level.followers:
                state.lanes.put_first(level.followers.pop(key))
                self._activate(state)

    def _divert_to_retry_topic(
        self, state: PartitionState, level: RetryLevel, records: list[AnyRecord], now_ms: int, effects: list[Effect]
    ) -> None:
        for record in records:
            self._writer.write_retry(state, record, level.index + 1, 0, now_ms, effects)
        fields = {"partition": str(state.topic_partition), "records": len(records), "offset": records[0].offset}
        effects.append(Notice("records_diverted", "info", fields))

    def _waits(self, state: PartitionState, level: RetryLevel, record: AnyRecord, now_ms: int) -> bool:
        """Let the record wait, if it may. Returns whether it does."""
        key, retry_topics = record.raw_key, state.plan.failures.retry_topics
        if key is None or key in level.impatient or retry_topics is None:
            return False
        followers = level.followers.get(key)
        if followers is None:
            ahead = level.chain.levels_with(key, level.index)
            if max(map(retry_topics.delay_ms, ahead)) > WAIT_MS:
                return False
            followers = level.followers[key] = []
            self._at(now_ms + WAIT_MS, lambda _, out: self._waited(state, level, key, followers))
        followers.append(record)
        return True

    def _is_half_full(self, state: PartitionState) -> bool:
        tracker, limits = state.tracker, self._flow.limits
        return tracker.window_records >= limits.high_records // 2 or tracker.window_bytes >= limits.high_bytes // 2

    def _waited(self, state: PartitionState, level: RetryLevel, key: bytes, followers: list[AnyRecord]) -> None:
        is_current = self._partitions.get(state.topic_partition) is state and not state.is_draining
        if is_current and level.followers.get(key) is followers:
            self._stop_waiting(state, level, key)
            self._activate(state)

    @staticmethod
    def _stop_waiting(state: PartitionState, level: RetryLevel, key: bytes) -> None:
        """Have the followers of a key, and those that come behind them, diverted when they are taken again."""
        level.impatient.add(key)
        state.lanes.put_first(level.followers.pop(key))
