"""The retry chains of a session over time: partitions come and go, levels are restored, records fall due.

The rule that keeps the order of a key is in `retry_chain`. Nothing here sleeps: a partition whose next record is not
due is paused, and a timer resumes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from ottla.consumer.model.effects import Effect, FindRetryPositions, SeekPartition
from ottla.consumer.model.events import RetryPositionsFound
from ottla.consumer.model.run import AnyRecord
from ottla.consumer.model.timers import At
from ottla.consumer.partitions.flow import FlowControl, PauseReason
from ottla.consumer.partitions.lanes import retry_lanes_for
from ottla.consumer.partitions.partition import PartitionState
from ottla.consumer.partitions.plan import RoutePlan
from ottla.consumer.partitions.retry_chain import RetryChain, RetryLevel
from ottla.failures.retry_headers import retry_state_of
from ottla.records import TopicPartition

ASK_AGAIN_MS = 1_000

_MOVED_MS = 100
"""Smaller steps of the wall clock are ignored: clocks are adjusted all the time, and two clocks are never read at the
same instant."""

_MOST_RESTORED = 4_000
"""Records of a retry topic that are kept while it is restored. Of further ones only the keys are kept, until they are
read again."""


class RetryChains:
    """The chains of one session. `activate` gives a partition its turn; `on_freed` is called as by `RetryChain`."""

    __slots__ = ("_activate", "_at", "_chains", "_epoch_offset_ms", "_flow", "_on_freed", "_partitions", "_places")

    def __init__(
        self,
        plans: Iterable[RoutePlan],
        partitions: Mapping[TopicPartition, PartitionState],
        *,
        flow: FlowControl,
        at: At,
        activate: Callable[[PartitionState], None],
        on_freed: Callable[[RetryChain, bytes], None],
        epoch_offset_ms: int,
    ) -> None:
        self._places: dict[str, tuple[RoutePlan, str, int]] = {}
        for plan in plans:
            for topic, retry_topics in plan.retry_chains.items():
                for index, name in enumerate((topic, *retry_topics)):
                    self._places[name] = (plan, topic, index)
        self._partitions = partitions
        self._chains: dict[TopicPartition, RetryChain] = {}
        self._flow = flow
        self._at = at
        self._activate = activate
        self._on_freed = on_freed
        self._epoch_offset_ms = epoch_offset_ms

    # Assignment

    def attach(self, state: PartitionState, effects: list[Effect], *, start: int | None = None) -> None:
        """Give the partition its level in its chain. `start` is where it is read from, unless that is where the group
        is committed."""
        place = self._places.get(state.topic_partition.topic)
        if place is None:
            return
        plan, topic, index = place
        origin = TopicPartition(topic, state.topic_partition.partition)
        chain = self._chains.get(origin)
        if chain is None:
            retry_topics, keeps_order = plan.retry_chains[topic], plan.keeps_key_order
            chain = RetryChain(origin, retry_topics, keeps_key_order=keeps_order, on_freed=self._on_freed)
            self._chains[origin] = chain
        level = chain.levels[index] = state.level = RetryLevel(chain, index)
        level.restored_to = start
        if index:
            state.lanes = retry_lanes_for(plan.ordering)
        if not level.is_restored:
            effects.append(FindRetryPositions([state.topic_partition]))

    def detach(self, states: Iterable[PartitionState]) -> list[PartitionState]:
        """Take these partitions out of their chains. Returns the partitions of those chains that stay: they must be
        restarted, because the counts of their keys cover the whole chain."""
        touched: dict[TopicPartition, RetryChain] = {}
        for state in states:
            if state.level is not None:
                chain = state.level.chain
                chain.levels[state.level.index] = None
                touched[chain.origin] = chain
        to_restart: list[PartitionState] = []
        for origin, chain in touched.items():
            chain.forget_keys()
            found = [self._partitions.get(name) for name in chain.partitions()]
            staying = [state for state in found if state is not None]
            if chain.keeps_key_order:
                to_restart += staying
            if not staying:
                del self._chains[origin]
        return to_restart

    def positions_found(self, event: RetryPositionsFound, now_ms: int, effects: list[Effect]) -> None:
        """Set the end offsets of partitions of retry topics. Records before these ends must be read before records of
        earlier levels are handled. Offsets that were not found are requested again."""
        missing: list[PartitionState] = []
        for name in event.asked:
            state = self._partitions.get(name)
            level = None if state is None else state.level
            if state is None or level is None or level.is_restored:
                continue
            position = event.positions.get(name)
            if position is None:
                missing.append(state)
                continue
            start, level.end = position
            restored_to = start if level.restored_to is None else level.restored_to
            if restored_to >= level.end:
                self._restored(state, level, effects)
        if missing:
            self._at(now_ms + ASK_AGAIN_MS, lambda _, out: self._ask_again(missing, out))

    def _ask_again(self, states: list[PartitionState], effects: list[Effect]) -> None:
        still = [state.topic_partition for state in states if self._partitions.get(state.topic_partition) is state]
        if still:
            effects.append(FindRetryPositions(still))

    # Records

    def restore(
        self, state: PartitionState, records: Sequence[AnyRecord], effects: list[Effect]
    ) -> Sequence[AnyRecord]:
        """Read fetched records for their keys, while their level is restored. Returns the records to be registered."""
        level = state.level
        if level is None or not records:
            return records
        first, last = records[0].offset, records[-1].offset
        if level.is_restored:
            if level.refetch_from is not None:
                if level.end is not None and first >= level.end:
                    return []  # The client had fetched it before it was sent back.
                level.refetch_from = None
            return records
        kept = records
        if level.refetch_from is not None or not self._may_keep(state):
            if level.refetch_from is None:
                level.refetch_from = first
            for record in records:
                if record.offset not in state.restored:
                    level.chain.expect(record.raw_key, level.index)
            kept = []
        level.restored_to = last + 1
        if level.end is not None and last + 1 >= level.end:
            self._restored(state, level, effects)
        return kept

    def passed(self, state: PartitionState, effects: list[Effect]) -> None:
        """Note that the position may have passed a tail without records, up to the end of a retry topic."""
        level, end = state.level, state.tracker.end
        if level is None or level.is_restored or level.refetch_from is not None or end is None:
            return
        level.restored_to = max(level.restored_to or 0, end)
        if level.end is not None and level.restored_to >= level.end:
            self._restored(state, level, effects)

    def _may_keep(self, state: PartitionState) -> bool:
        tracker, flow = state.tracker, self._flow
        is_full = tracker.window_records >= _MOST_RESTORED or tracker.window_bytes >= flow.limits.high_bytes
        return not is_full and flow.has_room

    def _restored(self, state: PartitionState, level: RetryLevel, effects: list[Effect]) -> None:
        level.is_restored = True
        if level.refetch_from is not None:
            effects.append(SeekPartition(state.topic_partition, level.refetch_from))
        if level.waiting:
            self._flow.pause(state.topic_partition, PauseReason.NOT_DUE)
        for name in level.chain.partitions():
            neighbour = self._partitions.get(name)
            if neighbour is not None:
                self._activate(neighbour)

    def put(self, state: PartitionState, records: Sequence[AnyRecord], now_ms: int) -> None:
        """Put registered records into the lanes; records of a retry topic enter once they are due."""
        level = state.level
        if level is None or level.index == 0:
            state.lanes.put(records)
            return
        retry_topics = state.plan.failures.retry_topics
        # A record is written before it is read, so its wait ends within the topic's delay from now. A later time is
        # forged, or of a host whose clock is wrong, and must not hold the records behind it.
        latest_ms = now_ms if retry_topics is None else now_ms + retry_topics.delay_ms(level.index)
        for record in records:
            level.chain.arrive(record.raw_key, level.index)
            level.waiting.append((self._due_ms(record, latest_ms), record))
        self.release_due(state, now_ms)

    def wall_clock_reads(self, wall_ms: int, now_ms: int) -> None:
        """Compute again when the waiting records are due: the wall clock may have been set."""
        moved_ms = wall_ms - now_ms - self._epoch_offset_ms
        if abs(moved_ms) < _MOVED_MS:
            return
        self._epoch_offset_ms += moved_ms
        for state in self._partitions.values():
            level, retry_topics = state.level, state.plan.failures.retry_topics
            if level is not None and level.waiting and retry_topics is not None:
                latest_ms = now_ms + retry_topics.delay_ms(level.index)
                level.waiting = deque((self._due_ms(record, latest_ms), record) for _, record in level.waiting)
                level.timer_ms = None
                self.release_due(state, now_ms)

    def _due_ms(self, record: AnyRecord, latest_ms: int) -> int:
        headers = retry_state_of(record.headers)
        return 0 if headers is None else min(headers.not_before_ms - self._epoch_offset_ms, latest_ms)

    def release_due(self, state: PartitionState, now_ms: int) -> None:
        """Put the records that are due into the lanes. Pause the partition while its next record is not due."""
        level = state.level
        name = state.topic_partition
        if level is None or self._flow.is_paused_for(name, PauseReason.DRAIN):
            return
        due = level.take_due(now_ms)
        if due:
            state.lanes.put(due)
            self._activate(state)
        if not level.waiting:
            self._flow.resume(name, PauseReason.NOT_DUE)
            return
        if level.is_restored:
            self._flow.pause(name, PauseReason.NOT_DUE)
        next_ms = level.waiting[0][0]
        if level.timer_ms != next_ms:
            level.timer_ms = next_ms
            self._at(next_ms, lambda fired_ms, _: self._timer(state, level, fired_ms))

    def _timer(self, state: PartitionState, level: RetryLevel, now_ms: int) -> None:
        level.timer_ms = None
        if self._partitions.get(state.topic_partition) is state and not state.is_draining:
            self.release_due(state, now_ms)
