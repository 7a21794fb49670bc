"""The consumer's mind: everything that happens goes in as an event, everything to do comes out as effects.

One session serves one client (one member of one group) and all its handlers. It knows no client, no thread, no clock:
`step(event, now_ms)` with monotonic milliseconds is all. Not thread-safe; the threaded shell holds a lock around each
step, once per fetched batch and once per run, never per record.

A record's life: `Fetched` → lanes (flow control may pause the partition) → scheduler → `Dispatch` → `RunFinished` →
done, retry timer, dead letter or stop → tracker → `Commit` of the contiguous prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from random import Random
from typing import Any

from ottla.consumer.commit.commits import AtMostOnce, CommitPolicy, InTransactions
from ottla.consumer.commit.committer import Committer
from ottla.consumer.commit.offset_metadata import decode_finished
from ottla.consumer.model import events
from ottla.consumer.model.effects import (
    Commit,
    Effect,
    FindStarts,
    Notice,
    PassOffsets,
    PausePartitions,
    ResumePartitions,
    SeekPartition,
    WriteRetry,
)
from ottla.consumer.model.run import AnyRecord
from ottla.consumer.model.timers import Timers
from ottla.consumer.partitions.flow import FlowControl, FlowLimits, PauseReason
from ottla.consumer.partitions.log_watch import LogWatch
from ottla.consumer.partitions.offsets import from_offset, offsets_of
from ottla.consumer.partitions.partition import AwaitedStart, PartitionState
from ottla.consumer.partitions.plan import RoutePlan, plans_by_topic
from ottla.consumer.readiness.health import DEFAULT_UNREADY_AFTER_S, Health
from ottla.consumer.readiness.lateness import note_head
from ottla.consumer.readiness.measures import MEASURED_AT_ONCE, partition_measures
from ottla.consumer.readiness.session_health import session_health
from ottla.consumer.settling.expiries import Expiries
from ottla.consumer.settling.letters import Letters
from ottla.consumer.settling.retry_lines import RetryLines
from ottla.consumer.settling.settlement import Settlement
from ottla.consumer.settling.stopping import stop_at
from ottla.consumer.turns.dispatcher import Dispatcher
from ottla.consumer.turns.route import RouteState
from ottla.records import TopicPartition
from ottla.telemetry.metrics.measurements import MemberMeasure, PartitionMeasure


class Session:
    """See the module. `epoch_offset_ms` is wall time minus monotonic time, for the times in headers; a shell renews it
    with `wall_clock_reads`."""

    def __init__(
        self,
        plans: Sequence[RoutePlan],
        *,
        group: str,
        now_ms: int,
        random: Random,
        flow: FlowLimits | None = None,
        commits: CommitPolicy | AtMostOnce | InTransactions | None = None,
        epoch_offset_ms: int = 0,
        unready_after_ms: int = round(DEFAULT_UNREADY_AFTER_S * 1_000),
    ) -> None:
        self._plans = plans_by_topic(list(plans))
        self._routes = {plan.name: RouteState(plan, now_ms) for plan in plans}
        self._has_stores = any(plan.keeps_offsets for plan in plans)
        self._partitions: dict[TopicPartition, PartitionState] = {}
        self._flow = FlowControl(flow or FlowLimits())
        self._commits = Committer(self._partitions, commits or CommitPolicy(), flow=self._flow, now_ms=now_ms)
        self._watch = LogWatch(self._partitions, flow=self._flow, unready_after_ms=unready_after_ms)
        self._timers = Timers()
        self._letters = Letters(group=group, random=random)
        self._expiries = Expiries(self._timers.at)
        self._settlement = Settlement(
            group=group,
            random=random,
            letters=self._letters,
            expiries=self._expiries,
            schedule=self._schedule_retry,
        )
        self._dispatcher = Dispatcher(
            self._partitions,
            self._routes,
            flow=self._flow,
            timers=self._timers,
            hold_back=lambda state, run, now_ms, effects: self._lines.hold_back(state, run, now_ms, effects),
            claims=self._commits.claims if isinstance(commits, AtMostOnce) else None,
        )
        self._lines = RetryLines(
            plans,
            self._partitions,
            flow=self._flow,
            letters=self._letters,
            at=self._timers.at,
            activate=self._dispatcher.activate,
            epoch_offset_ms=epoch_offset_ms,
        )
        self._next_epoch = 1
        self._epoch_offset_ms = epoch_offset_ms
        self._unready_after_ms = unready_after_ms
        self._is_closing = False
        self._is_drained = False
        self._dead_workers: list[str] = []

    def step(self, event: events.Event, now_ms: int) -> list[Effect]:
        """Take in one event. The effects are to be carried out in order."""
        effects: list[Effect] = []
        _HANDLERS[type(event)](self, event, now_ms, effects)
        self._timers.fire(now_ms, effects)
        self._dispatcher.dispatch(now_ms, effects)
        self._commits.commit_if_due(now_ms, effects)
        self._watch.look_if_due(now_ms, effects)
        if self._has_stores:
            self._stored(effects)
        self._tell_flow(effects)
        effects += self._commits.take_notices()
        return effects

    # What the shells ask

    @property
    def assignment(self) -> list[TopicPartition]:
        return list(self._partitions)

    def next_wakeup_ms(self, now_ms: int) -> int:
        """When `Tick` is wanted at the latest."""
        due = [ms for ms in (self._timers.first_ms, self._watch.next_ms) if ms is not None]
        return max(min(self._commits.next_ms, *due), now_ms) if due else max(self._commits.next_ms, now_ms)

    def should_hold(self, now_ms: int) -> bool:
        """Whether the shell should wait a moment before it polls: a buffer is full, and may drain without a pause."""
        for topic_partition in list(self._flow.held):
            self._observe(self._partitions[topic_partition], now_ms)
        return bool(self._flow.held)

    @property
    def is_throttled(self) -> bool:
        """Whether something is to reach the client soon: the resume of a partition that is paused because its buffer is
        full, or a commit that runs wait for."""
        return self._flow.has_full or bool(self._commits.claims)

    @property
    def free_bytes(self) -> int:
        """How much more may be buffered; less than nothing while too much is."""
        return self._flow.free_bytes

    @property
    def most_bytes(self) -> int:
        """How much may be buffered of all partitions together."""
        return self._flow.limits.total_bytes

    def is_quiet(self, partitions: Iterable[TopicPartition] | None = None) -> bool:
        """Whether nothing of these partitions (None: of all) is in a worker or on the way to the dead letter topic."""
        states = self._states(self._partitions if partitions is None else partitions)
        return all(state.is_quiet for state in states)

    def waits_behind(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those of these partitions in which records wait for earlier ones to be settled."""
        return [state.topic_partition for state in self._states(partitions) if state.lanes.waiting]

    @property
    def is_idle(self) -> bool:
        """Whether every fetched record is finished, but for those of retry topics that are not due."""
        return all(state.is_idle for state in self._partitions.values())

    @property
    def is_finished(self) -> bool:
        """Whether every fetched record is finished, those included that are not due yet."""
        return all(state.tracker.unfinished_count == 0 for state in self._partitions.values())

    def position(self, topic_partition: TopicPartition) -> int | None:
        """The offset that may be committed for an assigned partition."""
        state = self._partitions.get(topic_partition)
        return None if state is None else state.tracker.position

    def committable(self, now_ms: int) -> dict[TopicPartition, tuple[int, str]]:
        """The positions that changed since the last commit, for a caller who commits them now and tells the answer."""
        return self._commits.collect(now_ms)

    def epoch_of(self, topic_partition: TopicPartition) -> int | None:
        """Names the assignment (or the seek) since which a partition's records count; None when it is not owned."""
        state = self._partitions.get(topic_partition)
        return None if state is None else state.epoch

    def health(self, now_ms: int) -> Health:
        """How the consumer is."""
        return session_health(
            self._partitions.values(),
            self._routes,
            flow=self._flow,
            dead_workers=self._dead_workers,
            now_ms=now_ms,
            unready_after_ms=self._unready_after_ms,
        )

    def measures(self, now_ms: int) -> Generator[None, None, MemberMeasure]:
        """Return the figures of the consumer, `MEASURED_AT_ONCE` partitions per step.

        Between two steps the caller may let others use the session. Partitions that are revoked meanwhile are left out.
        """
        names = tuple(self._partitions)
        partitions: list[PartitionMeasure] = []
        for start in range(0, len(names), MEASURED_AT_ONCE):
            if start:
                yield
            wall_ms = now_ms + self._epoch_offset_ms
            states = self._states(names[start : start + MEASURED_AT_ONCE])
            partitions += partition_measures(states, self._routes, flow=self._flow, now_ms=now_ms, wall_ms=wall_ms)
        return MemberMeasure(
            partitions=tuple(partitions),
            runs_in_flight={name: route.in_flight + route.unconfirmed for name, route in self._routes.items()},
            budget_tokens=dict(self._settlement.budget_tokens),
        )

    @property
    def epoch_offset_ms(self) -> int:
        """Wall time minus monotonic time, as last renewed."""
        return self._epoch_offset_ms

    def wall_clock_reads(self, wall_ms: int, now_ms: int) -> None:
        """Renew the wall time. A host's clock may be set while the service runs: records of retry topics that wait are
        due by the new time."""
        self._epoch_offset_ms = wall_ms - now_ms
        self._lines.wall_clock_reads(wall_ms, now_ms)

    # Assignment

    def _assigned(self, event: events.Assigned, now_ms: int, effects: list[Effect]) -> None:
        awaiting: dict[TopicPartition, int] = {}
        for topic_partition in event.partitions:
            plan = self._plans.get(topic_partition.topic) or self._plans.get(ANY_TOPIC)
            if plan is None or topic_partition in self._partitions:
                continue
            state = PartitionState(topic_partition, self._take_epoch(), plan, now_ms)
            committed = (event.committed or {}).get(topic_partition)
            start = None if committed is None else committed[0]
            if committed is not None:
                state.restored = decode_finished(committed[1], committed[0])
            elif not plan.keeps_offsets:
                start = (event.starts or {}).get(topic_partition)
                self._begin_at(state, start)
            self._watch.assigned(state, None if committed is None else committed[0], start)
            self._partitions[topic_partition] = state
            self._routes[plan.name].add(topic_partition)
            self._lines.join(state, effects)
            if self._is_drained:
                self._flow.pause(topic_partition, PauseReason.DRAIN)
            if plan.keeps_offsets:
                state.awaited = AwaitedStart(None if committed is None else committed[0])
                state.is_draining = True  # takes nothing in
                self._flow.pause(topic_partition, PauseReason.START)
                awaiting[topic_partition] = state.epoch
        if awaiting:
            effects.append(FindStarts(awaiting))
        if event.partitions:
            self._watch.look_now(now_ms)
            effects.append(Notice("partitions_assigned", fields=_named(event.partitions)))

    def _begin_at(self, state: PartitionState, start: int | None) -> None:
        """The client begins there, and the group is to go on from there however soon the partition moves."""
        if start is not None and state.tracker.pass_to(start) and state.plan.is_at_most_once:
            state.claimed = start

    def _revoking(self, event: events.Revoking, now_ms: int, effects: list[Effect]) -> None:
        for state in self._states(event.partitions):
            self._stop_work(state)

    def _revoked(self, event: events.Revoked, now_ms: int, effects: list[Effect]) -> None:
        states = list(self._states(event.partitions))
        self._commits.commit_last(states, effects)
        self._expiries.leave(states, effects)
        for state in states:
            self._drop(state)
        self._rewind(self._lines.leave(states), now_ms, effects)
        if states:
            effects.append(Notice("partitions_revoked", fields=_named([state.topic_partition for state in states])))

    def _lost(self, event: events.Lost, now_ms: int, effects: list[Effect]) -> None:
        states = list(self._states(event.partitions))
        self._expiries.leave(states, effects)
        for state in states:
            self._stop_work(state)
            self._drop(state)
        self._rewind(self._lines.leave(states), now_ms, effects)
        if states:
            effects.append(Notice("partitions_lost", "warning", _named([state.topic_partition for state in states])))

    # Records

    def _fetched(self, event: events.Fetched, now_ms: int, effects: list[Effect]) -> None:
        state = self._partitions.get(event.topic_partition)
        if state is None or state.is_draining or self._is_closing:
            if state is not None and state.awaited is not None:
                state.awaited.not_taken(event.records)
            return
        if self._flow.is_paused_for(event.topic_partition, PauseReason.DRAIN):
            # The client had them before it heard of the pause. They are not registered, so nobody waits for them and
            # no commit passes them; the client will not give them again, so they are kept until the resume.
            state.late.append(event)
            return
        state.behind = event.behind
        records = event.records
        if state.stored_start is not None and records:
            if records[0].offset < state.stored_start:
                # The client found nothing there, and has begun where auto.offset.reset says.
                self._stop_before_start(state, records[0].offset, effects)
                return
            state.stored_start = None
        end, offsets = state.tracker.end, offsets_of(records)
        if end is not None and offsets and offsets[0] < end:
            # After a seek or a resume the client may repeat what it gave before.
            records = from_offset(records, end)
            offsets = offsets_of(records)
        if offsets:
            self._watch.fetched(state, offsets, now_ms, effects)
        kept = self._lines.look(state, records, effects)
        if kept is not records:
            records, offsets = kept, offsets_of(kept)
        if offsets:
            state.pace.came(now_ms)
            state.fetched(records[0])
        state.tracker.register(offsets, size_bytes=event.size_bytes, now_ms=now_ms)
        if state.restored:
            already = [record.offset for record in records if record.offset in state.restored]
            state.tracker.finish_many(already)
            records = [record for record in records if record.offset not in state.restored]
            if records and records[-1].offset > max(state.restored):
                state.restored = frozenset()
        self._lines.put(state, records, now_ms)
        self._dispatcher.activate(state)
        self._observe(state, now_ms)
        if state.linger is not None:
            self._dispatcher.look_again(state, state.linger.came(waiting=state.lanes.waiting, now_ms=now_ms))

    def _run_handled(self, event: events.RunHandled, now_ms: int, effects: list[Effect]) -> None:
        # The lane stays as busy as it was, and the partition as little quiet: only the worker is free.
        self._routes[event.run.route].handled(event.run, now_ms)

    def _run_finished(self, event: events.RunFinished, now_ms: int, effects: list[Effect]) -> None:
        run, result = event.run, event.result
        self._routes[run.route].finished(run, result, now_ms)
        if result.fatal is not None:
            self._dead_workers.append(f"{result.fatal.error_type}: {result.fatal.message}")
        state = self._partitions.get(run.topic_partition)
        if state is None or state.epoch != run.epoch:
            return  # A late result of an assignment that is over: its records belong to somebody else now.
        state.in_flight.discard(run)
        finished = self._settlement.settle(state, run, result, now_ms, now_ms + self._epoch_offset_ms, effects)
        self._progressed(state, finished, now_ms)

    def _dead_letter_written(self, event: events.DeadLetterWritten, now_ms: int, effects: list[Effect]) -> None:
        state = self._current(event.topic_partition, event.epoch)
        letter = None if state is None else state.dead_letters.pop(event.offset, None)
        if state is None or letter is None:
            return
        state.settle([letter.effect.record])
        self._letters.written(state, letter, event.form, effects)
        self._lines.written(state, letter, effects)
        self._progressed(state, 1, now_ms)

    def _dead_letter_failed(self, event: events.DeadLetterFailed, now_ms: int, effects: list[Effect]) -> None:
        state = self._current(event.topic_partition, event.epoch)
        if state is None or event.offset not in state.dead_letters:
            return
        if not event.fits and isinstance(state.dead_letters[event.offset].effect, WriteRetry):
            self._lines.leave_out(state, state.dead_letters[event.offset], effects)
            wall_ms = now_ms + self._epoch_offset_ms
            if self._letters.retry_does_not_fit(state, event.offset, event.error, now_ms, wall_ms, effects):
                self._flow.pause(state.topic_partition, PauseReason.STOPPED)
            return
        wait_ms = self._letters.failed(state, event.offset, event.error, effects)
        if wait_ms is None:
            self._flow.pause(state.topic_partition, PauseReason.STOPPED)
            return
        self._timers.at(now_ms + wait_ms, lambda _, out: self._write_again(state, event.offset, out))

    def _write_again(self, state: PartitionState, offset: int, effects: list[Effect]) -> None:
        letter = state.dead_letters.get(offset)
        if (
            letter is not None
            and self._dispatcher.is_current(state)
            and state.stopped is None
            and not letter.is_writing
        ):
            letter.is_writing = True
            effects.append(letter.effect)

    def _schedule_retry(self, state: PartitionState, group: Sequence[AnyRecord], due_ms: int) -> None:
        first = group[0].offset
        state.retries[first] = due_ms, len(group)

        def fire(now_ms: int, effects: list[Effect]) -> None:
            state.retries.pop(first, None)
            if self._dispatcher.is_current(state):
                state.lanes.retry(group)
                self._dispatcher.activate(state)

        self._timers.at(due_ms, fire)

    # Commits

    def _commit_succeeded(self, event: events.CommitSucceeded, now_ms: int, effects: list[Effect]) -> None:
        self._commits.succeeded(effects)

    def _commit_failed(self, event: events.CommitFailed, now_ms: int, effects: list[Effect]) -> None:
        self._commits.failed(event, now_ms, effects)

    # Verbs

    def _tick(self, event: events.Tick, now_ms: int, effects: list[Effect]) -> None:
        for topic_partition in list(self._flow.held):
            self._observe(self._partitions[topic_partition], now_ms)

    def _pause_requested(self, event: events.PauseRequested, now_ms: int, effects: list[Effect]) -> None:
        for state in self._states(event.partitions or list(self._partitions)):
            self._flow.pause(state.topic_partition, PauseReason.USER)
            self._routes[state.plan.name].scheduler.deactivate(state.topic_partition)

    def _resume_requested(self, event: events.ResumeRequested, now_ms: int, effects: list[Effect]) -> None:
        if not event.partitions:
            self._is_drained = False
        for state in self._states(event.partitions or list(self._partitions)):
            if state.stopped is not None and state.stored_start is not None:
                self._find_start_again(state, now_ms, effects)
                continue
            for reason in (PauseReason.USER, PauseReason.STOPPED, PauseReason.DRAIN):
                self._flow.resume(state.topic_partition, reason)
            self._lines.release_due(state, now_ms)
            late, state.late = state.late, []
            for fetched in late:
                self._fetched(fetched, now_ms, effects)
            stopped, state.stopped = state.stopped, None
            for group in stopped.groups if stopped is not None else ():
                for record in group:
                    state.attempts.pop(record.offset, None)
                state.lanes.retry(group)
            for letter in state.dead_letters.values():
                if not letter.is_writing and not letter.is_queued:
                    letter.failed_writes = 0
                    letter.is_writing = True
                    effects.append(letter.effect)
            self._dispatcher.activate(state)

    def _retry_positions_found(self, event: events.RetryPositionsFound, now_ms: int, effects: list[Effect]) -> None:
        self._lines.found(event, now_ms, effects)

    def _logs_seen(self, event: events.LogsSeen, now_ms: int, effects: list[Effect]) -> None:
        moves = self._watch.seen(event, now_ms, effects)
        for name, seen in event.logs.items():
            state = self._current(name, event.epochs[name])
            if state is not None and seen.tail is not None:
                self._lines.passed(state, effects)
        for state, offset in moves:
            if state.plan.keeps_offsets:
                self._stop_before_start(state, offset, effects)
            elif self._partitions.get(state.topic_partition) is state:  # not begun anew for another one of its line
                self._seek_requested(events.SeekRequested(state.topic_partition, offset), now_ms, effects)

    def _starts_found(self, event: events.StartsFound, now_ms: int, effects: list[Effect]) -> None:
        for name, epoch in event.epochs.items():
            state = self._current(name, epoch)
            if state is None:
                continue
            awaited, stored = state.awaited, event.starts.get(name)
            offset = stored
            if offset is None and awaited is not None:
                offset = awaited.first_fetched if awaited.committed is None else awaited.committed
            if offset is not None:
                fresh = self._begin_anew(state, offset, now_ms, effects)
                fresh.stored_start = stored
            elif awaited is not None:
                # Nothing of it was taken in, so the client is where it began.
                state.awaited, state.is_draining = None, False
                self._flow.resume(name, PauseReason.START)

    def _stop_before_start(self, state: PartitionState, offset: int, effects: list[Effect]) -> None:
        """The log is not the one that the store's offset is of. Where to go on instead is not for us to guess."""
        start = state.stored_start if state.stored_start is not None else state.tracker.position
        reason = (
            f"its store says that it goes on at offset {start}, and the log has nothing there, but at {offset}: "
            "the topic was made again, or its end was lost. Set the offset (ottla offsets reset --store), then resume"
        )
        state.stored_start = start
        self._stop_work(state)
        stop_at(state, [], reason, effects)
        self._flow.pause(state.topic_partition, PauseReason.STOPPED)

    def _find_start_again(self, state: PartitionState, now_ms: int, effects: list[Effect]) -> None:
        fresh = self._begin_anew(state, None, now_ms, effects)
        fresh.awaited = AwaitedStart(None)
        fresh.is_draining = True
        self._flow.pause(fresh.topic_partition, PauseReason.START)
        effects.append(FindStarts({fresh.topic_partition: fresh.epoch}))

    def _stored(self, effects: list[Effect]) -> None:
        """What is committed of partitions whose offsets are in a store, the store is to know too."""
        for effect in list(effects):
            if isinstance(effect, Commit):
                kept = {name: offset for name, (offset, _) in effect.offsets.items() if self._keeps_offsets(name.topic)}
                if kept:
                    effects.append(PassOffsets(kept))

    def _keeps_offsets(self, topic: str) -> bool:
        plan = self._plans.get(topic)
        return plan is not None and plan.keeps_offsets

    def _client_failed(self, event: events.ClientFailed, now_ms: int, effects: list[Effect]) -> None:
        state = self._partitions.get(event.topic_partition)
        if state is not None:
            state.log.error = event.error

    def _seek_requested(self, event: events.SeekRequested, now_ms: int, effects: list[Effect]) -> None:
        state = self._partitions.get(event.topic_partition)
        if state is not None:
            left = [other for other in self._lines.leave([state]) if other is not state]
            self._begin_anew(state, event.offset, now_ms, effects)
            self._rewind(left, now_ms, effects)

    def _rewind(self, states: Iterable[PartitionState], now_ms: int, effects: list[Effect]) -> None:
        for state in states:
            self._lines.leave([state])
        for state in states:
            state.account_progress()
            if state.tracker.position is None:
                # Nothing of it was taken in. It is not known where it stands, so the client cannot be sent back there.
                self._lines.join(state, effects)
                continue
            fresh = self._begin_anew(state, state.tracker.position, now_ms, effects)
            fresh.restored = state.restored | frozenset(state.tracker.finished_beyond())
            fresh.tracker.continue_from(state.tracker)

    def _begin_anew(
        self, state: PartitionState, offset: int | None, now_ms: int, effects: list[Effect]
    ) -> PartitionState:
        """Go on from `offset` (None: from where it stands) as after an assignment: what is in flight is dropped."""
        self._stop_work(state)
        self._expiries.leave([state], effects)
        # What the user asked for outlives the seek; what the old records were the reason of does not.
        kept = [reason for reason in _OF_THE_USER if self._flow.is_paused_for(state.topic_partition, reason)]
        for reason in PauseReason:
            self._flow.resume(state.topic_partition, reason)
        for reason in kept:
            self._flow.pause(state.topic_partition, reason)
        self._flow.observe(state.topic_partition, records=0, size_bytes=0, now_ms=now_ms)
        self._routes[state.plan.name].scheduler.forget(state.topic_partition)
        fresh = PartitionState(state.topic_partition, self._take_epoch(), state.plan, now_ms)
        self._partitions[state.topic_partition] = fresh
        self._routes[state.plan.name].add(state.topic_partition)
        self._lines.join(fresh, effects, start=offset)
        fresh.log.topic_id, fresh.log.old_ids = state.log.topic_id, state.log.old_ids
        fresh.log.expected = offset
        self._watch.look_now(now_ms)
        if offset is not None:
            effects.append(SeekPartition(state.topic_partition, offset))
        return fresh

    def _drain_requested(self, event: events.DrainRequested, now_ms: int, effects: list[Effect]) -> None:
        self._is_drained = True
        for topic_partition, state in self._partitions.items():
            self._flow.pause(topic_partition, PauseReason.DRAIN)
            self._dispatcher.activate(state)  # a batch that lingers goes out as it is

    def _close_requested(self, event: events.CloseRequested, now_ms: int, effects: list[Effect]) -> None:
        self._is_closing = True
        for state in self._partitions.values():
            self._stop_work(state)

    def _closed(self, event: events.Closed, now_ms: int, effects: list[Effect]) -> None:
        self._revoked(events.Revoked(list(self._partitions)), now_ms, effects)

    # Machinery

    def _progressed(self, state: PartitionState, finished: int, now_ms: int) -> None:
        self._commits.count(finished)
        state.pace.finished(finished, now_ms, is_idle=not state.tracker.window_records)
        note_head(state, now_ms)
        if state.stopped is not None:
            self._flow.pause(state.topic_partition, PauseReason.STOPPED)
        self._dispatcher.activate(state)
        self._observe(state, now_ms)

    def _observe(self, state: PartitionState, now_ms: int) -> None:
        tracker = state.tracker
        if state.stage is not None and not state.stage.is_restored:
            # A retry topic is looked through to its end first; what is kept of it is bounded there.
            self._flow.count(state.topic_partition, records=tracker.window_records, size_bytes=tracker.window_bytes)
            return
        behind_records, behind_bytes = state.behind
        self._flow.observe(
            state.topic_partition,
            records=tracker.window_records + behind_records,
            size_bytes=tracker.window_bytes + behind_bytes,
            now_ms=now_ms,
            records_per_s=state.pace.records_per_s,
        )

    def _tell_flow(self, effects: list[Effect]) -> None:
        to_pause, to_resume = self._flow.changes()
        if to_pause:
            effects.append(PausePartitions(to_pause))
        if to_resume:
            effects.append(ResumePartitions(to_resume))

    def _stop_work(self, state: PartitionState) -> None:
        state.is_draining = True
        state.cancel()
        for run in self._commits.claims.withdraw(lambda run: run in state.in_flight):
            state.in_flight.discard(run)
            self._routes[state.plan.name].let_go(run)
        self._routes[state.plan.name].scheduler.deactivate(state.topic_partition)

    def _drop(self, state: PartitionState) -> None:
        self._partitions.pop(state.topic_partition, None)
        self._watch.gone(state)
        self._flow.forget(state.topic_partition)
        self._routes[state.plan.name].scheduler.forget(state.topic_partition)

    def _take_epoch(self) -> int:
        self._next_epoch += 1
        return self._next_epoch - 1

    def _states(self, partitions: Iterable[TopicPartition]) -> Iterable[PartitionState]:
        return [self._partitions[name] for name in partitions if name in self._partitions]

    def _current(self, topic_partition: TopicPartition, epoch: int) -> PartitionState | None:
        state = self._partitions.get(topic_partition)
        return state if state is not None and state.epoch == epoch else None


_OF_THE_USER = (PauseReason.USER, PauseReason.DRAIN)

ANY_TOPIC = "*"
"""A plan with this topic takes the partitions that no other plan names (a subscription by pattern)."""


def _named(partitions: Sequence[TopicPartition]) -> dict[str, object]:
    return {"partitions": [str(name) for name in sorted(partitions)]}


_HANDLERS: dict[type[Any], Callable[[Session, Any, int, list[Effect]], None]] = {
    events.Assigned: Session._assigned,
    events.Revoking: Session._revoking,
    events.Revoked: Session._revoked,
    events.Lost: Session._lost,
    events.Fetched: Session._fetched,
    events.RunHandled: Session._run_handled,
    events.RunFinished: Session._run_finished,
    events.DeadLetterWritten: Session._dead_letter_written,
    events.DeadLetterFailed: Session._dead_letter_failed,
    events.RetryPositionsFound: Session._retry_positions_found,
    events.LogsSeen: Session._logs_seen,
    events.StartsFound: Session._starts_found,
    events.ClientFailed: Session._client_failed,
    events.CommitSucceeded: Session._commit_succeeded,
    events.CommitFailed: Session._commit_failed,
    events.Tick: Session._tick,
    events.PauseRequested: Session._pause_requested,
    events.ResumeRequested: Session._resume_requested,
    events.SeekRequested: Session._seek_requested,
    events.DrainRequested: Session._drain_requested,
    events.CloseRequested: Session._close_requested,
    events.Closed: Session._closed,
}
"""The state machine's table: which method takes which event. A test checks that every event is in it."""
