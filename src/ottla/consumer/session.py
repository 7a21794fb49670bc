"""The consumer without a client: events go in (`step`), effects come out. It has no thread, no clock and no socket.

How it works:

1.  One session serves one client, which is one member of one group, and all its handlers.
2.  The shells (threads and asyncio) turn what happens into events, and carry the effects out in order.
3.  `_HANDLERS` is the table of the state machine: one method for each event.
4.  `Assigned` makes a `PartitionState` with a new epoch. A result that carries an older epoch is ignored: its records
    belong to another owner, or are handled again after a seek.
5.  `Fetched` registers records in the offset tracker and puts them into the partition's lanes (`FetchedRecords`).
6.  Lanes say which records may be handled side by side: none, one per key, or all of a partition.
7.  After each event the dispatcher gives free workers runs: partitions take turns, and one run is records of one
    partition (`Dispatch`).
8.  `RunFinished` brings a run's result. The settlement settles its records, retries them, or gives them up.
9.  A settled record moves the tracker's position if all records before it are settled too. Positions are committed
    when the commit policy says so, and before a partition is revoked. Nothing that is not settled is ever passed.
10. What is finished beyond the position is named in the commit's metadata, so that the next owner need not repeat it.
11. Flow control pauses a partition whose buffer is full, and resumes it when half of it is handled.
12. A failed record may be written to a retry topic or a dead letter topic (`WriteRetry`, `WriteDeadLetter`). It is
    settled by `WriteAcknowledged`.
13. Retry topics are ordinary partitions of the same session. A chain keeps the order of a key over all of them.
14. `Revoking` cancels runs after their current record, `Revoked` commits once more and forgets the partition. `Lost`
    forgets it without a commit: another member owns it already.
15. A partition stops when no declared policy can take its record. The member is not ready until it is resumed.
16. Timers (retries, repeated writes, batches that wait for more) fire within a step. `next_wakeup_ms` says when the
    next `Tick` is wanted.
17. Time comes with each step, in monotonic milliseconds. `epoch_offset_ms` turns it into the time of day.
18. A session is not thread-safe. The threaded shell holds a lock around each step: once per fetched batch and per run,
    never per record.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from random import Random
from typing import Any

from ottla.consumer.assignment import Assignment
from ottla.consumer.commit.commits import AtMostOnce, CommitPolicy, InTransactions
from ottla.consumer.commit.committer import Committer
from ottla.consumer.fetched_records import FetchedRecords
from ottla.consumer.model import events
from ottla.consumer.model.effects import (
    Effect,
    Notice,
    PausePartitions,
    ResumePartitions,
)
from ottla.consumer.model.failed_writes import WriteRetry
from ottla.consumer.model.timers import Timers
from ottla.consumer.outcomes.expiries import Expiries
from ottla.consumer.outcomes.failure_writer import FailureWriter
from ottla.consumer.outcomes.followers import Followers
from ottla.consumer.outcomes.retry_chains import RetryChains
from ottla.consumer.outcomes.settlement import Settlement
from ottla.consumer.partitions.flow import FlowControl, FlowLimits, PauseReason
from ottla.consumer.partitions.log_watch import LogWatch
from ottla.consumer.partitions.partition import AwaitedStart, PartitionState
from ottla.consumer.partitions.plan import RoutePlan, plans_by_topic
from ottla.consumer.readiness.health import DEFAULT_UNREADY_AFTER_S, Health
from ottla.consumer.readiness.lateness import note_head
from ottla.consumer.readiness.measures import MEASURED_AT_ONCE, partition_measures
from ottla.consumer.readiness.session_health import session_health
from ottla.consumer.scheduling.dispatcher import Dispatcher
from ottla.consumer.scheduling.route import RouteState
from ottla.consumer.stored_positions import StoredPositions
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
        self._plans = plans_by_topic(plans)
        self._routes = {plan.name: RouteState(plan, now_ms) for plan in plans}
        self._partitions: dict[TopicPartition, PartitionState] = {}
        self._flow = FlowControl(flow or FlowLimits())
        limits = {name: route.limit for name, route in self._routes.items() if route.limit is not None}
        self._commits = Committer(
            self._partitions, commits or CommitPolicy(), flow=self._flow, limits=limits, now_ms=now_ms
        )
        self._watch = LogWatch(self._partitions, flow=self._flow, unready_after_ms=unready_after_ms)
        self._timers = Timers()
        self._writer = FailureWriter(group=group, random=random)
        self._expiries = Expiries(self._timers.at, group=group, writer=self._writer)
        self._followers = Followers(
            self._partitions,
            flow=self._flow,
            writer=self._writer,
            at=self._timers.at,
            activate=lambda state: self._dispatcher.activate(state),
        )
        self._dispatcher = Dispatcher(
            self._partitions,
            self._routes,
            flow=self._flow,
            timers=self._timers,
            hold_back=self._followers.hold_back,
            claims=self._commits.claims if isinstance(commits, AtMostOnce) else None,
        )
        self._settlement = Settlement(
            group=group,
            random=random,
            writer=self._writer,
            expiries=self._expiries,
            schedule=self._dispatcher.retry_at,
        )
        self._chains = RetryChains(
            plans,
            self._partitions,
            flow=self._flow,
            at=self._timers.at,
            activate=self._dispatcher.activate,
            on_freed=self._followers.freed,
            epoch_offset_ms=epoch_offset_ms,
        )
        self._assignment = Assignment(
            self._partitions,
            self._routes,
            flow=self._flow,
            commits=self._commits,
            watch=self._watch,
            expiries=self._expiries,
            chains=self._chains,
        )
        self._stored = StoredPositions(self._plans, self._partitions, flow=self._flow, assignment=self._assignment)
        self._fetched_records = FetchedRecords(
            self._partitions,
            flow=self._flow,
            watch=self._watch,
            stored=self._stored,
            chains=self._chains,
            dispatcher=self._dispatcher,
        )
        self._epoch_offset_ms = epoch_offset_ms
        self._unready_after_ms = unready_after_ms
        self._is_closing = False
        self._is_drained = False
        self._dead_workers: list[str] = []

    def step(self, event: events.Event, now_ms: int) -> list[Effect]:
        """Apply one event, and return its effects in the order in which the shell must execute them."""
        effects: list[Effect] = []
        _HANDLERS[type(event)](self, event, now_ms, effects)
        self._timers.fire(now_ms, effects)
        self._dispatcher.dispatch(now_ms, effects)
        self._commits.commit_if_due(now_ms, effects)
        self._watch.look_if_due(now_ms, effects)
        if self._stored.are_used:
            self._stored.follow_commits(effects)
        self._apply_flow(effects)
        effects += self._commits.take_notices()
        return effects

    # Queries of the shells

    @property
    def assignment(self) -> list[TopicPartition]:
        return list(self._partitions)

    def next_wakeup_ms(self, now_ms: int) -> int:
        """Return when the next `Tick` is wanted at the latest."""
        due = [ms for ms in (self._timers.first_ms, self._watch.next_ms) if ms is not None]
        return max(min(self._commits.next_ms, *due), now_ms) if due else max(self._commits.next_ms, now_ms)

    def should_hold(self, now_ms: int) -> bool:
        """Return whether the shell should wait a moment before it polls: a buffer is full and may drain soon."""
        self._fetched_records.count_held(now_ms)
        return bool(self._flow.held)

    @property
    def is_throttled(self) -> bool:
        """True if the client is needed soon: to resume a partition whose buffer was full, or for a commit that runs
        wait for."""
        return self._flow.has_full or bool(self._commits.claims)

    @property
    def free_bytes(self) -> int:
        """The bytes that may still be buffered; negative while too much is."""
        return self._flow.free_bytes

    @property
    def most_bytes(self) -> int:
        """The bytes that may be buffered of all partitions together."""
        return self._flow.limits.total_bytes

    def is_quiet(self, partitions: Iterable[TopicPartition] | None = None) -> bool:
        """Return whether no record of these partitions (None: of all) is in a worker or being written."""
        states = self._states(self._partitions if partitions is None else partitions)
        return all(state.is_quiet for state in states)

    def waits_behind(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the given partitions in which records wait for earlier ones to be settled."""
        return [state.topic_partition for state in self._states(partitions) if state.lanes.waiting]

    @property
    def is_idle(self) -> bool:
        """True if every fetched record is finished, apart from records of retry topics that are not due."""
        return all(state.is_idle for state in self._partitions.values())

    @property
    def is_finished(self) -> bool:
        """True if every fetched record is finished, including those that are not due yet."""
        return all(state.tracker.unfinished_count == 0 for state in self._partitions.values())

    def position(self, topic_partition: TopicPartition) -> int | None:
        """Return the offset that may be committed for an assigned partition; None if it is not assigned or not read."""
        state = self._partitions.get(topic_partition)
        return None if state is None else state.tracker.position

    def committable(self, now_ms: int) -> dict[TopicPartition, tuple[int, str]]:
        """Return the positions that changed since the last commit. The caller commits them and passes in the answer."""
        return self._commits.collect(now_ms)

    def epoch_of(self, topic_partition: TopicPartition) -> int | None:
        """Return the epoch of a partition's assignment (or last seek); None if it is not assigned."""
        state = self._partitions.get(topic_partition)
        return None if state is None else state.epoch

    def health(self, now_ms: int) -> Health:
        """Return the health of the consumer."""
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
            budget_tokens=self._settlement.budgets.tokens,
            limited={name: route.is_limited(now_ms) for name, route in self._routes.items() if route.limit is not None},
        )

    @property
    def epoch_offset_ms(self) -> int:
        """Wall time minus monotonic time, as last renewed."""
        return self._epoch_offset_ms

    def wall_clock_reads(self, wall_ms: int, now_ms: int) -> None:
        """Renew the wall time. A host's clock may be set while the service runs: records of retry topics that wait are
        due by the new time."""
        self._epoch_offset_ms = wall_ms - now_ms
        self._chains.wall_clock_reads(wall_ms, now_ms)

    # Assignment

    def _assigned(self, event: events.Assigned, now_ms: int, effects: list[Effect]) -> None:
        in_stores: list[PartitionState] = []
        for topic_partition in event.partitions:
            plan = self._plans.get(topic_partition.topic) or self._plans.get(ANY_TOPIC)
            if plan is None or topic_partition in self._partitions:
                continue
            committed = (event.committed or {}).get(topic_partition)
            start = (event.starts or {}).get(topic_partition)
            state = self._assignment.add(topic_partition, plan, committed, start, now_ms, effects)
            if self._is_drained:
                self._flow.pause(topic_partition, PauseReason.DRAIN)
            if plan.keeps_offsets:
                state.awaited = AwaitedStart(None if committed is None else committed[0])
                in_stores.append(state)
        self._stored.find(in_stores, effects)
        if event.partitions:
            self._watch.look_now(now_ms)
            effects.append(Notice("partitions_assigned", fields=_named(event.partitions)))

    def _revoking(self, event: events.Revoking, now_ms: int, effects: list[Effect]) -> None:
        for state in self._states(event.partitions):
            self._assignment.stop_work(state)

    def _revoked(self, event: events.Revoked, now_ms: int, effects: list[Effect]) -> None:
        states = self._states(event.partitions)
        self._commits.commit_last(states, effects)
        self._expiries.leave(states, effects)
        self._assignment.remove(states, now_ms, effects)
        if states:
            effects.append(Notice("partitions_revoked", fields=_named([state.topic_partition for state in states])))

    def _lost(self, event: events.Lost, now_ms: int, effects: list[Effect]) -> None:
        states = self._states(event.partitions)
        self._expiries.leave(states, effects)
        for state in states:
            self._assignment.stop_work(state)
        self._assignment.remove(states, now_ms, effects)
        if states:
            effects.append(Notice("partitions_lost", "warning", _named([state.topic_partition for state in states])))

    # Records

    def _fetched(self, event: events.Fetched, now_ms: int, effects: list[Effect]) -> None:
        state = self._partitions.get(event.topic_partition)
        if state is None or state.is_draining or self._is_closing:
            if state is not None and state.awaited is not None:
                state.awaited.not_taken(event.records)
            return
        self._fetched_records.take(state, event, now_ms, effects)

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
            return  # a late result of an older assignment, whose records have another owner now
        state.in_flight.discard(run)
        finished = self._settlement.apply_result(state, run, result, now_ms, now_ms + self._epoch_offset_ms, effects)
        self._progressed(state, finished, now_ms)

    def _write_acknowledged(self, event: events.WriteAcknowledged, now_ms: int, effects: list[Effect]) -> None:
        state = self._current(event.topic_partition, event.epoch)
        write = None if state is None else state.pending_writes.pop(event.offset, None)
        if state is None or write is None:
            return
        state.settle([write.effect.record])
        self._writer.acknowledged(state, write, event.form, effects)
        self._progressed(state, 1, now_ms)

    def _write_failed(self, event: events.WriteFailed, now_ms: int, effects: list[Effect]) -> None:
        state = self._current(event.topic_partition, event.epoch)
        if state is None or event.offset not in state.pending_writes:
            return
        if not event.fits and isinstance(state.pending_writes[event.offset].effect, WriteRetry):
            wall_ms = now_ms + self._epoch_offset_ms
            if self._writer.retry_does_not_fit(state, event.offset, event.error, now_ms, wall_ms, effects):
                self._flow.pause(state.topic_partition, PauseReason.STOPPED)
            return
        wait_ms = self._writer.failed(state, event.offset, event.error, effects)
        if wait_ms is None:
            self._flow.pause(state.topic_partition, PauseReason.STOPPED)
            return

        def repeat(now_ms: int, effects: list[Effect]) -> None:
            if self._dispatcher.is_current(state):
                self._writer.repeat(state, event.offset, effects)

        self._timers.at(now_ms + wait_ms, repeat)

    # Commits

    def _commit_succeeded(self, event: events.CommitSucceeded, now_ms: int, effects: list[Effect]) -> None:
        self._commits.succeeded(effects)

    def _commit_failed(self, event: events.CommitFailed, now_ms: int, effects: list[Effect]) -> None:
        self._commits.failed(event, now_ms, effects)

    # Verbs

    def _tick(self, event: events.Tick, now_ms: int, effects: list[Effect]) -> None:
        self._fetched_records.count_held(now_ms)

    def _pause_requested(self, event: events.PauseRequested, now_ms: int, effects: list[Effect]) -> None:
        for state in self._states(event.partitions or list(self._partitions)):
            self._flow.pause(state.topic_partition, PauseReason.USER)
            self._routes[state.plan.name].scheduler.deactivate(state.topic_partition)

    def _resume_requested(self, event: events.ResumeRequested, now_ms: int, effects: list[Effect]) -> None:
        if not event.partitions:
            self._is_drained = False
        for state in self._states(event.partitions or list(self._partitions)):
            if state.stopped is not None and state.stored_start is not None:
                self._stored.find_again(state, now_ms, effects)
                continue
            for reason in (PauseReason.USER, PauseReason.STOPPED, PauseReason.DRAIN):
                self._flow.resume(state.topic_partition, reason)
            self._chains.release_due(state, now_ms)
            late, state.late = state.late, []
            for fetched in late:
                self._fetched(fetched, now_ms, effects)
            stopped, state.stopped = state.stopped, None
            for group in stopped.groups if stopped is not None else ():
                for record in group:
                    state.attempts.pop(record.offset, None)
                state.lanes.retry(group)
            self._writer.repeat_all(state, effects)
            self._dispatcher.activate(state)

    def _retry_positions_found(self, event: events.RetryPositionsFound, now_ms: int, effects: list[Effect]) -> None:
        self._chains.positions_found(event, now_ms, effects)

    def _logs_seen(self, event: events.LogsSeen, now_ms: int, effects: list[Effect]) -> None:
        moves = self._watch.seen(event, now_ms, effects)
        for name, seen in event.logs.items():
            state = self._current(name, event.epochs[name])
            if state is not None and seen.tail is not None:
                self._chains.passed(state, effects)
        for state, offset in moves:
            if state.plan.keeps_offsets:
                self._stored.stop_before_start(state, offset, effects)
            elif (
                self._partitions.get(state.topic_partition) is state
            ):  # not restarted with another partition of its chain
                self._seek_requested(events.SeekRequested(state.topic_partition, offset), now_ms, effects)

    def _starts_found(self, event: events.StartsFound, now_ms: int, effects: list[Effect]) -> None:
        self._stored.found(event, now_ms, effects)

    def _client_failed(self, event: events.ClientFailed, now_ms: int, effects: list[Effect]) -> None:
        state = self._partitions.get(event.topic_partition)
        if state is not None:
            state.log.error = event.error

    def _seek_requested(self, event: events.SeekRequested, now_ms: int, effects: list[Effect]) -> None:
        state = self._partitions.get(event.topic_partition)
        if state is not None:
            self._assignment.seek(state, event.offset, now_ms, effects)

    def _drain_requested(self, event: events.DrainRequested, now_ms: int, effects: list[Effect]) -> None:
        self._is_drained = True
        for topic_partition, state in self._partitions.items():
            self._flow.pause(topic_partition, PauseReason.DRAIN)
            self._dispatcher.activate(state)  # a batch that lingers goes out as it is

    def _close_requested(self, event: events.CloseRequested, now_ms: int, effects: list[Effect]) -> None:
        self._is_closing = True
        for state in self._partitions.values():
            self._assignment.stop_work(state)

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
        self._fetched_records.count(state, now_ms)

    def _apply_flow(self, effects: list[Effect]) -> None:
        to_pause, to_resume = self._flow.changes()
        if to_pause:
            effects.append(PausePartitions(to_pause))
        if to_resume:
            effects.append(ResumePartitions(to_resume))

    def _states(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        return [self._partitions[name] for name in partitions if name in self._partitions]

    def _current(self, topic_partition: TopicPartition, epoch: int) -> PartitionState | None:
        state = self._partitions.get(topic_partition)
        return state if state is not None and state.epoch == epoch else None


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
    events.WriteAcknowledged: Session._write_acknowledged,
    events.WriteFailed: Session._write_failed,
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
