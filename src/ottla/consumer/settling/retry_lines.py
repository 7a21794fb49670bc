"""What a session does about its retry topics: who is in which line, what is due, and when a stage may be handled.

The rule that keeps a key's order is in `retry_line`; here are its surroundings in time: partitions come and go, their
records are looked at before anything is handled, and they wait until they are due. Nothing sleeps: a partition whose
next record is not due is paused, and a timer lets it go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from ottla.consumer.model.effects import Effect, FindRetryPositions, SeekPartition, WriteRetry
from ottla.consumer.model.events import RetryPositionsFound
from ottla.consumer.model.run import AnyRecord
from ottla.consumer.partitions.flow import FlowControl, PauseReason
from ottla.consumer.partitions.lanes import retry_lanes_for
from ottla.consumer.partitions.partition import PartitionState, PendingWrite
from ottla.consumer.partitions.plan import RoutePlan
from ottla.consumer.partitions.retry_line import RetryLine, Stage
from ottla.failures.retry_headers import retry_state_of
from ottla.records import TopicPartition

ASK_AGAIN_MS = 1_000

_MOVED_MS = 100
"""By less than this a clock is adjusted all the time, and two clocks are not read at once."""

_MOST_RESTORED = 4_000
"""Records of a retry topic that are kept while it is looked through; of more only the keys are, until they are read
again."""

At = Callable[[int, Callable[[int, list[Effect]], None]], None]


class RetryLines:
    """The lines of one session. `activate` tells that a partition may have something to hand out."""

    __slots__ = ("_activate", "_at", "_epoch_offset_ms", "_flow", "_lines", "_partitions", "_places")

    def __init__(
        self,
        plans: Iterable[RoutePlan],
        partitions: Mapping[TopicPartition, PartitionState],
        *,
        flow: FlowControl,
        at: At,
        activate: Callable[[PartitionState], None],
        epoch_offset_ms: int,
    ) -> None:
        self._places: dict[str, tuple[RoutePlan, str, int]] = {}
        for plan in plans:
            for topic, retry_topics in plan.retry_lines.items():
                for index, name in enumerate((topic, *retry_topics)):
                    self._places[name] = (plan, topic, index)
        self._partitions = partitions
        self._lines: dict[TopicPartition, RetryLine] = {}
        self._flow = flow
        self._at = at
        self._activate = activate
        self._epoch_offset_ms = epoch_offset_ms

    # Partitions come and go

    def join(self, state: PartitionState, effects: list[Effect], *, start: int | None = None) -> None:
        """The partition takes its place in its line. `start` is where it is read from, if not where it is committed."""
        place = self._places.get(state.topic_partition.topic)
        if place is None:
            return
        plan, topic, index = place
        origin = TopicPartition(topic, state.topic_partition.partition)
        line = self._lines.get(origin)
        if line is None:
            line = RetryLine(origin, plan.retry_lines[topic], keeps_key_order=plan.keeps_key_order)
            self._lines[origin] = line
        stage = line.stages[index] = state.stage = Stage(line, index)
        stage.looked_to = start
        if index:
            state.lanes = retry_lanes_for(plan.ordering)
        if not stage.is_restored:
            effects.append(FindRetryPositions([state.topic_partition]))

    def leave(self, states: Iterable[PartitionState]) -> list[PartitionState]:
        """These partitions are gone. Returns those of their lines that are still here: they must begin anew, because
        what is known of their keys was counted over the whole line."""
        touched: dict[TopicPartition, RetryLine] = {}
        for state in states:
            if state.stage is not None:
                line = state.stage.line
                line.stages[state.stage.index] = None
                touched[line.origin] = line
        left: list[PartitionState] = []
        for origin, line in touched.items():
            line.forget_keys()
            here = [self._partitions.get(name) for name in line.partitions()]
            stays = [state for state in here if state is not None]
            if line.keeps_key_order:
                left += stays
            if not stays:
                del self._lines[origin]
        return left

    def found(self, event: RetryPositionsFound, now_ms: int, effects: list[Effect]) -> None:
        """It is known where partitions of retry topics end: what lies before that must be seen before others go on."""
        missing: list[PartitionState] = []
        for name in event.asked:
            state = self._partitions.get(name)
            stage = None if state is None else state.stage
            if state is None or stage is None or stage.is_restored:
                continue
            position = event.positions.get(name)
            if position is None:
                missing.append(state)
                continue
            start, stage.end = position
            looked_to = start if stage.looked_to is None else stage.looked_to
            if looked_to >= stage.end:
                self._restored(state, stage, effects)
        if missing:
            self._at(now_ms + ASK_AGAIN_MS, lambda _, out: self._ask_again(missing, out))

    def _ask_again(self, states: list[PartitionState], effects: list[Effect]) -> None:
        still = [state.topic_partition for state in states if self._partitions.get(state.topic_partition) is state]
        if still:
            effects.append(FindRetryPositions(still))

    # Records

    def look(self, state: PartitionState, records: Sequence[AnyRecord], effects: list[Effect]) -> Sequence[AnyRecord]:
        """Records of a partition in a line were fetched. Returns those that are to be taken in."""
        stage = state.stage
        if stage is None or not records:
            return records
        first, last = records[0].offset, records[-1].offset
        if stage.is_restored:
            if stage.refetch_from is not None:
                if stage.end is not None and first >= stage.end:
                    return []  # It was under way before the seek back.
                stage.refetch_from = None
            return records
        kept = records
        if stage.refetch_from is not None or not self._may_keep(state):
            if stage.refetch_from is None:
                stage.refetch_from = first
            for record in records:
                if record.offset not in state.restored:
                    stage.line.expect(record.raw_key, stage.index)
            kept = []
        stage.looked_to = last + 1
        if stage.end is not None and last + 1 >= stage.end:
            self._restored(state, stage, effects)
        return kept

    def passed(self, state: PartitionState, effects: list[Effect]) -> None:
        """The position may have gone on over a tail without records: the end of a retry topic may be reached so."""
        stage, end = state.stage, state.tracker.end
        if stage is None or stage.is_restored or stage.refetch_from is not None or end is None:
            return
        stage.looked_to = max(stage.looked_to or 0, end)
        if stage.end is not None and stage.looked_to >= stage.end:
            self._restored(state, stage, effects)

    def _may_keep(self, state: PartitionState) -> bool:
        tracker, flow = state.tracker, self._flow
        is_full = tracker.window_records >= _MOST_RESTORED or tracker.window_bytes >= flow.limits.high_bytes
        return not is_full and flow.has_room

    def put(self, state: PartitionState, records: Sequence[AnyRecord], now_ms: int) -> None:
        """Taken in: records of a retry topic wait until they are due."""
        stage = state.stage
        if stage is None or stage.index == 0:
            state.lanes.put(records)
            return
        retry_topics = state.plan.failures.retry_topics
        # It was written before it was read, so its wait ends within the topic's delay from now. What says otherwise was
        # forged, or written by a host whose clock is wrong, and must not hold those behind it.
        longest_ms = now_ms if retry_topics is None else now_ms + retry_topics.delay_ms(stage.index)
        for record in records:
            stage.line.arrive(record.raw_key, stage.index)
            stage.waiting.append((self._due_ms(record, longest_ms), record))
        self.release_due(state, now_ms)

    def wall_clock_reads(self, wall_ms: int, now_ms: int) -> None:
        """The wall clock may have been set: what waits is due by the new time."""
        moved_ms = wall_ms - now_ms - self._epoch_offset_ms
        if abs(moved_ms) < _MOVED_MS:
            return
        self._epoch_offset_ms += moved_ms
        for state in self._partitions.values():
            stage, retry_topics = state.stage, state.plan.failures.retry_topics
            if stage is not None and stage.waiting and retry_topics is not None:
                longest_ms = now_ms + retry_topics.delay_ms(stage.index)
                stage.waiting = deque((self._due_ms(record, longest_ms), record) for _, record in stage.waiting)
                stage.timer_ms = None
                self.release_due(state, now_ms)

    def _due_ms(self, record: AnyRecord, longest_ms: int) -> int:
        headers = retry_state_of(record.headers)
        return 0 if headers is None else min(headers.not_before_ms - self._epoch_offset_ms, longest_ms)

    def release_due(self, state: PartitionState, now_ms: int) -> None:
        """Hand on what is due; pause the partition while its next record is not."""
        stage = state.stage
        name = state.topic_partition
        if stage is None or self._flow.is_paused_for(name, PauseReason.DRAIN):
            return
        due = stage.take_due(now_ms)
        if due:
            state.lanes.put(due)
            self._activate(state)
        if not stage.waiting:
            self._flow.resume(name, PauseReason.NOT_DUE)
            return
        if stage.is_restored:
            self._flow.pause(name, PauseReason.NOT_DUE)
        next_ms = stage.waiting[0][0]
        if stage.timer_ms != next_ms:
            stage.timer_ms = next_ms
            self._at(next_ms, lambda fired_ms, _: self._timer(state, stage, fired_ms))

    def _timer(self, state: PartitionState, stage: Stage, now_ms: int) -> None:
        stage.timer_ms = None
        if self._partitions.get(state.topic_partition) is state and not state.is_draining:
            self.release_due(state, now_ms)

    # What became of them

    def written(self, state: PartitionState, letter: PendingWrite, effects: list[Effect]) -> None:
        """A record was acknowledged in a retry topic: the next one of its key may be written."""
        effect = letter.effect
        if state.stage is None or not isinstance(effect, WriteRetry) or effect.record.raw_key is None:
            return
        following = state.stage.line.writes.acknowledged(effect.record.raw_key)
        if isinstance(following, PendingWrite):
            following.is_queued = False
            following.is_writing = True
            effects.append(following.effect)

    def leave_out(self, state: PartitionState, letter: PendingWrite, effects: list[Effect]) -> None:
        """A record will not be written to its retry topic after all: the next one of its key may be."""
        effect = letter.effect
        if state.stage is None or not isinstance(effect, WriteRetry):
            return
        state.stage.line.expect_no_more(effect.record.raw_key, effect.number)
        self.written(state, letter, effects)

    def _restored(self, state: PartitionState, stage: Stage, effects: list[Effect]) -> None:
        stage.is_restored = True
        if stage.refetch_from is not None:
            effects.append(SeekPartition(state.topic_partition, stage.refetch_from))
        if stage.waiting:
            self._flow.pause(state.topic_partition, PauseReason.NOT_DUE)
        for name in stage.line.partitions():
            neighbour = self._partitions.get(name)
            if neighbour is not None:
                self._activate(neighbour)
