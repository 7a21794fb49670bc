"""What a session does about its retry topics: who is in which line, what is due, and when a stage may be handled.

The rule that keeps a key's order is in `retry_line`; here are its surroundings in time: partitions come and go, their
records are looked at before anything is handled, and they wait until they are due. Nothing sleeps: a partition whose
next record is not due is paused, and a timer lets it go on.

A record that must follow an earlier one of its key waits where it is while that one is in a retry topic with a short
delay (at most `WAIT_MS`). If it were written behind that one, each record would be a write that waits for the one
before, and under a steady load the key would never leave the retry topic. When it has waited for `WAIT_MS`, or the
partition has fetched half of what its buffer takes, it is written to the retry topic: other keys must not wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from ottla.consumer.model.effects import Effect, FindRetryPositions, Notice, SeekPartition, WriteRetry
from ottla.consumer.model.events import RetryPositionsFound
from ottla.consumer.model.run import AnyRecord, Run
from ottla.consumer.partitions.flow import FlowControl, PauseReason
from ottla.consumer.partitions.lanes import retry_lanes_for
from ottla.consumer.partitions.partition import PartitionState, PendingWrite
from ottla.consumer.partitions.plan import RoutePlan
from ottla.consumer.partitions.retry_line import RetryLine, Stage
from ottla.consumer.settling.letters import Letters
from ottla.failures.retry_headers import retry_state_of
from ottla.records import TopicPartition

ASK_AGAIN_MS = 1_000

WAIT_MS = 5_000
"""How long a record waits for an earlier one of its key: if that one is in a retry topic with a delay of at most this.
Up to then the group's offset stays at the first one that waits, and what follows it is handled again after a crash,
unless the offset's metadata has room to name it."""

_MOVED_MS = 100
"""By less than this a clock is adjusted all the time, and two clocks are not read at once."""

_MOST_RESTORED = 4_000
"""Records of a retry topic that are kept while it is looked through; of more only the keys are, until they are read
again."""

At = Callable[[int, Callable[[int, list[Effect]], None]], None]


class RetryLines:
    """The lines of one session. `activate` tells that a partition may have something to hand out."""

    __slots__ = ("_activate", "_at", "_epoch_offset_ms", "_flow", "_letters", "_lines", "_partitions", "_places")

    def __init__(
        self,
        plans: Iterable[RoutePlan],
        partitions: Mapping[TopicPartition, PartitionState],
        *,
        flow: FlowControl,
        letters: Letters,
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
        self._letters = letters
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
            line = RetryLine(
                origin, plan.retry_lines[topic], keeps_key_order=plan.keeps_key_order, on_freed=self._freed
            )
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

    # Records that follow an earlier one of their key

    def hold_back(self, state: PartitionState, run: Run, now_ms: int, effects: list[Effect]) -> Run | None:
        """Take out of the run what must follow an earlier record of its key: it waits, or is passed on. Returns what is
        left of the run, or None."""
        stage = state.stage
        if stage is None or not stage.line.holds_any(stage.index):
            return run
        held = [record for record in run.records if stage.line.is_held(record.raw_key, stage.index)]
        if not held:
            return run
        passed_on = [record for record in held if not self._waits(state, stage, record, now_ms)]
        for record in passed_on:
            self._letters.retry(state, record, stage.index + 1, 0, now_ms, effects)
        if passed_on:
            fields = {"partition": str(state.topic_partition), "records": len(passed_on), "offset": passed_on[0].offset}
            effects.append(Notice("records_parked", "info", fields))
        left = {record.offset for record in run.records} - {record.offset for record in held}
        run.records = [record for record in run.records if record.offset in left]
        if not run.records or not state.lanes.keep_order:
            state.lanes.end_run(held, ())
        if stage.followers and self._is_half_full(state):
            for key in list(stage.followers):
                self._wait_no_longer(state, stage, key)
        return run if run.records else None

    def _waits(self, state: PartitionState, stage: Stage, record: AnyRecord, now_ms: int) -> bool:
        key, retry_topics = record.raw_key, state.plan.failures.retry_topics
        if key is None or key in stage.impatient or retry_topics is None:
            return False
        waiting = stage.followers.get(key)
        if waiting is None:
            ahead = stage.line.stages_with(key, stage.index)
            if max(map(retry_topics.delay_ms, ahead)) > WAIT_MS:
                return False
            waiting = stage.followers[key] = []
            self._at(now_ms + WAIT_MS, lambda _, out: self._waited(state, stage, key, waiting))
        waiting.append(record)
        return True

    def _is_half_full(self, state: PartitionState) -> bool:
        tracker, limits = state.tracker, self._flow.limits
        return tracker.window_records >= limits.high_records // 2 or tracker.window_bytes >= limits.high_bytes // 2

    def _waited(self, state: PartitionState, stage: Stage, key: bytes, waiting: list[AnyRecord]) -> None:
        is_current = self._partitions.get(state.topic_partition) is state and not state.is_draining
        if is_current and stage.followers.get(key) is waiting:
            self._wait_no_longer(state, stage, key)
            self._activate(state)

    def _wait_no_longer(self, state: PartitionState, stage: Stage, key: bytes) -> None:
        """What waits is passed on when it is taken again, and so is what comes behind it."""
        stage.impatient.add(key)
        state.lanes.put_first(stage.followers.pop(key))

    def _freed(self, line: RetryLine, key: bytes) -> None:
        """A stage has no record of this key any more: what waited for it is handled."""
        for stage in line.stages:
            if stage is None or not (key in stage.followers or key in stage.impatient):
                continue
            if line.is_held(key, stage.index):
                continue
            stage.impatient.discard(key)
            state = self._partitions.get(line.partition_of(stage.index))
            if state is not None and state.stage is stage and key in stage.followers:
                state.lanes.put_first(stage.followers.pop(key))
                self._activate(state)

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
