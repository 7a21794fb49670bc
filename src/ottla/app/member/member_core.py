"""One member of a group, without its client: the part that threads, asyncio and columns share.

How it works:

1.  A member has one client, one `Session`, and workers that run handlers. The session decides, the member acts.
2.  A shell subclasses it for everything that waits or calls the client: connect, fetch, commit, seek, close.
3.  Whatever happens is an event: records were fetched, a run has ended, a commit was acknowledged, time has passed.
4.  `_step` passes an event to the session, under the guard (a lock in threads, nothing on an event loop), and carries
    out the effects.
5.  Effects for the client are queued under the guard, so that they keep the order of the steps: pause, resume, seek,
    commit, look-ups (`_perform_now`).
6.  All other effects are carried out after the guard is released: runs go to workers, failed records to their
    producer, notices to the log and the metrics (`_perform_later`).
7.  Runs come first among those. A worker that has finished a run usually gets the next one from its own step, without
    the queue (`takes_run`).
8.  The final commit before a revocation is waited for inside the client's rebalance callback (`_commit_last`).
9.  A failed record is written by a producer of the member's own, which calls `_on_written` with the result. That is
    an event again: a record is settled by the acknowledgement of its write, never by the decision to write it.
10. Offsets in a store of the user's are found and moved by `StoredOffsets`, and transactions are committed by
    `MemberTransactions`, each in a thread or task of its own.
11. An answer of another thread is applied through `_from_another_thread`.
12. The starts and ends of logs are looked up by `OffsetPoller`, beside the client, over connections of its own.
13. If a topic disappears, the member continues with the others and is not ready (`MissingTopics`).
14. If something cannot continue, `_end` stops the member, and `error` is what it ended with.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, ClassVar, Final, Unpack

from ottla.app.member.call_checks import check_assigned, check_offset, check_timestamp
from ottla.app.member.client_commands import CommandParts
from ottla.app.member.client_error_log import ClientErrorLog
from ottla.app.member.handler_workers import WorkerBase
from ottla.app.member.member_base import MemberBase, MemberOptions, MemberParts
from ottla.app.member.member_commits import CommitParts, MemberCommits
from ottla.app.member.missing_topics import MissingTopics
from ottla.app.member.start_offsets import StartOffsets
from ottla.app.member.stored_offsets import StoredOffsets
from ottla.app.once.exactly_once_invoker import TransactionalSink
from ottla.config import TopicWait
from ottla.config.assignors import conflict, offered
from ottla.consumer.model import events
from ottla.consumer.model.effects import (
    Commit,
    Dispatch,
    Effect,
    Expired,
    FindRetryPositions,
    FindStarts,
    LookAtLogs,
    Notice,
    PassInTransaction,
    PassOffsets,
    PausePartitions,
    ResumePartitions,
    SeekPartition,
)
from ottla.consumer.model.failed_writes import Write, WriteDeadLetter, WriteRetry
from ottla.consumer.model.run import Run
from ottla.consumer.partitions.plan import priority_of_topics
from ottla.consumer.readiness.health import Health, unready_after_ms
from ottla.consumer.session import Session
from ottla.errors import ConfigError, RetriableError
from ottla.failures.dead_letter import Form
from ottla.once.transaction_parts import OffsetOnly, TransactionPart
from ottla.processes import forks
from ottla.records import TopicPartition
from ottla.telemetry import Throttling, log_event
from ottla.wire_client.fetching.offset_poller import OffsetPoller, PolledLogs
from ottla.wire_client.group.group_offsets import assignor_in_use

ANSWER_S: Final = 10.0
"""How long what listens there may take to answer, and not longer than `start_timeout_s`."""

LEAVE_S: Final = 5.0
"""How long a client may take to leave its group; then it is left to itself."""

HINDERED_S: Final = 0.5
"""A client that takes longer to leave waits for something."""

_LEAST_ANSWER_S: Final = 3.0

_CLOCK_MOVED_MS: Final = 1_000
"""Nothing else than setting it moves a wall clock by that between two turns."""


class MemberCore(MemberBase):
    """One member of a group, without what each shell does in its own way. The shells' group members subclass it."""

    _workers: WorkerBase
    _is_stopping: Any
    """An event of the shell, of threads or asyncio."""
    _has_changed: Callable[[], object]
    """Wakes whatever waits for a change of the session. Called with the session guarded."""

    def __init__(self, options: MemberOptions, **parts: Unpack[MemberParts]) -> None:
        super().__init__(options, **parts)
        self._priority_of = priority_of_topics(options.plans)
        if options.transactions is not None:
            self._failed_writes = TransactionalSink(self._failed_writes, options.transactions, self._submit)
            for handler in options.transactions.handlers:
                handler.submit = self._submit
        self._answer_s = min(ANSWER_S, max(_LEAST_ANSWER_S, self._start_timeout_s))
        now_ms = self._clock.monotonic_ms()
        self._session = Session(
            options.plans,
            group=options.group,
            now_ms=now_ms,
            random=options.random or Random(),
            flow=options.flow,
            commits=options.commits,
            epoch_offset_ms=self._clock.now_ms() - now_ms,
            unready_after_ms=unready_after_ms(options.unready_after_s),
        )
        self._guard: AbstractContextManager[Any] = nullcontext()
        """Held while the session is asked."""
        self._transactions: MemberCommits | None = None
        self._begin = StartOffsets(
            reset=str(options.settings["auto.offset.reset"]),
            log_ends_of=self._log_ends_of,
            committed_of=self._committed_of,
            notice=self._perform_elsewhere,
        )
        self._missing = MissingTopics(
            now_ms=self._clock.monotonic_ms,
            assignment=self.assignment,
            notice=self._perform_elsewhere,
            on_gone=self._begin.gone,
        )
        self._client: Any = None
        self._error_log = ClientErrorLog(options.group, self._clock)
        self.throttling = Throttling.of_group(
            options.group,
            client=self.client_name,
            now_ms=self._clock.monotonic_ms,
            hooks=self._hooks,
        )
        self._offset_poller: OffsetPoller[events.LookedAt] = OffsetPoller(
            options.settings, name=f"ottla-{options.group}-logs", answer=self._on_logs, failed=self._error_log.note
        )
        self._starts = StoredOffsets(
            options.stores,
            group=options.group,
            found=partial(self._from_another_thread, self._step),
            epoch_of=self._session.epoch_of,
        )
        forks.refuses(self)

    _on_asyncio: ClassVar[bool] = False

    @abstractmethod
    def take_run(self, timeout_s: float) -> Any:
        """Return the next run, for a caller that handles and finishes it; None after `timeout_s` seconds, or at the
        end. On an event loop this is to be awaited."""

    @abstractmethod
    def seek_to_time(self, topic_partition: TopicPartition, timestamp_ms: int) -> Any:
        """Go on from the first record at or after `timestamp_ms` (epoch), or from the end. Returns the offset."""

    @abstractmethod
    def drain(self, timeout_s: float) -> Any:
        """Take nothing new until `resume`, and wait until everything fetched is done. False when `timeout_s` was too
        short for that."""

    @abstractmethod
    def _for_client(self, effect: Effect) -> None:
        """Carry out what is for the client, or keep it, in the order of the decisions. With the session guarded."""

    @abstractmethod
    def _commit_last(self, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Commit a last time before the partitions are given up. If it fails, their next owner delivers the records
        again."""

    # Questions and verbs

    def assignment(self) -> list[TopicPartition]:
        with self._guard:
            return self._session.assignment

    def position(self, topic_partition: TopicPartition) -> int | None:
        with self._guard:
            return self._session.position(topic_partition)

    def pause(self, *partitions: TopicPartition) -> None:
        """Take no more records of these partitions (none named: of all)."""
        check_assigned("pause", partitions, self.assignment(), group=self.group)
        self._step(events.PauseRequested(partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with these partitions (none named: with all), also with those that stopped at a failure."""
        check_assigned("resume", partitions, self.assignment(), group=self.group)
        self._step(events.ResumeRequested(partitions))

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Go on from `offset`. What is in flight of the partition is dropped."""
        check_offset(offset)
        check_assigned("seek", [topic_partition], self.assignment(), group=self.group)
        self._seek(topic_partition, offset)

    def finish(self, finished: events.RunFinished) -> None:
        """Finish a run that was taken with `take_run`."""
        self._step(finished)

    def log_unsettled(self, partitions: Sequence[TopicPartition]) -> None:
        """Log that records of these partitions wait to be settled, if any do: a caller that polls got no record."""
        with self._guard:
            held = self._session.waits_behind(partitions)
        if held:
            names = ", ".join(map(str, held))
            self._error_log.write(
                "warning",
                "records_not_settled",
                f"nothing more comes of {names} before what was taken is settled: ack()",
            )

    def _own_topics_awaited(self, should_give_up: Callable[[], bool]) -> TopicWait:
        """Return the wait for the subscribed topics that begins now, and ends when the member is stopped."""
        return self.topics_awaited(self._topics, lambda: self._is_stopping.is_set() or should_give_up())

    # Steps and effects

    def _step(self, event: events.Event, *, takes_run: bool = False) -> Run | None:
        """Return one step of the session, and its effects. With `takes_run` the first run is returned instead of
        queued."""
        with self._guard:
            later = self._perform_now(self._session.step(event, self._clock.monotonic_ms()))
            self._has_changed()
        own: Run | None = None
        if takes_run and later and type(later[0]) is Dispatch:
            own = later.pop(0).run  # type: ignore[union-attr]
        if later:
            self._perform_later(later)
        return own

    def _perform_now(self, effects: list[Effect]) -> list[Effect]:
        """Hand over what is for the client. Returns the rest, runs first. With the session guarded."""
        runs: list[Effect] = []
        later: list[Effect] = []
        for effect in effects:
            match effect:
                case Dispatch():
                    runs.append(effect)
                case PausePartitions() | ResumePartitions() | SeekPartition() | FindRetryPositions() | LookAtLogs():
                    self._for_client(effect)
                case Commit(_, is_final) if not is_final:
                    self._for_client(effect)
                case _:
                    later.append(effect)
        return runs + later

    def _perform_later(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Dispatch(run):
                    self._workers.put(run)
                case Commit(offsets):
                    self._commit_last(offsets)
                case _:
                    self._perform_elsewhere(effect)

    # For the shells

    def _submit(self, work: TransactionPart) -> None:
        """Have it committed in a transaction."""
        assert self._transactions is not None, "a member whose handlers have no transactions"
        self._transactions.submit(work)

    def _commit_parts(self) -> CommitParts:
        """Return what an object that commits for this member needs of it."""
        return {"holds": self._holds, "tell": self._event, "end": self._cannot_commit}

    def _holds(self, topic_partition: TopicPartition, epoch: int) -> bool:
        """Return whether a partition is this member's, without interruption since `epoch`."""
        with self._guard:
            return self._session.epoch_of(topic_partition) == epoch

    @abstractmethod
    def _log_ends_of(self, partitions: Sequence[TopicPartition]) -> Any:
        """Return the log bounds of partitions; partitions without a response are left out. On an event loop this is
        awaited."""

    @abstractmethod
    def _committed_of(self, partitions: Sequence[TopicPartition]) -> Any:
        """Return the group's committed offsets, or None when they cannot be read. On an event loop the result must be
        awaited."""

    def _seek(self, topic_partition: TopicPartition, offset: int) -> None:
        self._step(events.SeekRequested(topic_partition, offset))

    def _check_time_to_seek(self, topic_partition: TopicPartition, timestamp_ms: int) -> None:
        check_timestamp(timestamp_ms)
        check_assigned("seek_to_time", [topic_partition], self.assignment(), group=self.group)

    def _command_parts(self) -> CommandParts:
        """Return what carries out the session's client calls needs of the member."""
        return {
            "group": self.group,
            "step": self._step,
            "error_log": self._error_log,
            "watch": self._watch,
            "clock": self._clock,
            "look": self._offset_poller.ask,
        }

    def _health(self, *, loop: str, is_running: bool, has_started: bool) -> Health:
        with self._guard:
            now_ms = self._clock.monotonic_ms()
            health = self._session.health(now_ms)
        missing = self._missing.problems()
        if missing:
            health = replace(health, is_ready=False, problems=(*health.problems, *missing))
        return health if is_running else Health.of_loop(health, loop=loop, has_started=has_started, error=self.error)

    def _check_still_has(self, epochs: Mapping[TopicPartition, int], generation: int) -> None:
        """Raise `RetriableError` unless it has these partitions, without interruption since these epochs."""
        lost = [str(name) for name, epoch in epochs.items() if self._session.epoch_of(name) != epoch]
        if lost or generation < 0:
            raise RetriableError(
                f"send_offsets: group {self.group!r} has given {', '.join(lost) or 'its partitions'} to others "
                "since the records were taken"
            )

    def _measure_if_due(self) -> Iterator[None]:
        """Measure the member once a second. Yields between two steps, so that workers and fetching go on."""
        now_ms = self._clock.monotonic_ms()
        if not self._watch.is_due(now_ms):
            return
        steps = self._session.measures(now_ms)
        while True:
            try:
                with self._guard:
                    next(steps)
            except StopIteration as end:
                self._watch.measured(end.value)
                return
            yield

    def _renew_wall_time(self) -> None:
        """Follow a wall clock that was set, each turn: it must neither move what is due nor stand in headers."""
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.now_ms()
        moved_ms = wall_ms - now_ms - self._session.epoch_offset_ms
        if abs(moved_ms) > 1:  # the two clocks are not read at once
            with self._guard:
                self._session.wall_clock_reads(wall_ms, now_ms)
            if abs(moved_ms) >= _CLOCK_MOVED_MS:
                log_event("clock_moved", "warning", {"group": self.group, "by_ms": moved_ms})

    def _stop_reporting(self) -> None:
        """Stop reporting: end open spans of failed records, and stop the metrics."""
        self._starts.stop()
        self._attempts.end_all()
        self._watch.ended()

    def _count_fetched(self, fetched: events.Fetched) -> None:
        if self._hooks:
            self._hooks.fetched(
                group=self.group,
                topic=fetched.topic_partition.topic,
                records=len(fetched.records),
                size_bytes=fetched.size_bytes,
            )

    def _perform_elsewhere(self, effect: Effect) -> None:
        """Carry out an effect that needs neither the client nor a worker."""
        match effect:
            case WriteDeadLetter() | WriteRetry():
                with self._attempts.around_failed_write(str(effect.topic_partition), effect.record.offset):
                    self._failed_writes.write(effect, self._on_written)
            case Expired(name, route, records):
                if self._hooks:
                    self._hooks.expired(group=self.group, handler=route, topic=name.topic, records=len(records))
            case FindStarts(epochs):
                self._starts.find(epochs)
            case PassOffsets(offsets):
                self._starts.passed(offsets)
            case PassInTransaction(positions):
                for name, (epoch, offset) in positions.items():
                    self._submit(OffsetOnly(name, epoch, offset))
            case Notice():
                self._notice(effect)
            case _:
                raise AssertionError(f"no shell code for {effect!r}")

    def _on_written(
        self, failed_write: Write, error: str | None, /, *, form: Form = Form.WHOLE, fits: bool = True
    ) -> None:
        name, epoch, offset = failed_write.topic_partition, failed_write.epoch, failed_write.record.offset
        if error is None:
            self._step(events.WriteAcknowledged(name, epoch, offset, form))
        else:
            self._step(events.WriteFailed(name, epoch, offset, error, fits))

    def _on_logs(self, asked: events.LookedAt, looked: PolledLogs) -> None:
        """Apply polled log bounds. Called in the polling thread."""
        logs = {name: (ends.topic_id, ends.start, ends.end) for name, ends in looked.logs.items()}
        self._from_another_thread(self._logs_seen, asked.seen(logs, looked.tails), looked.missing)

    def _logs_seen(self, seen: events.LogsSeen, missing: Collection[str]) -> None:
        for topic in missing:
            self._missing.gone(topic)
        self._step(seen)

    def _from_another_thread(self, call: Callable[..., object], *arguments: Any) -> None:
        """Make a call that steps the session. On an event loop it is made there."""
        call(*arguments)

    def _assignor_conflict(self) -> ConfigError:
        """Return the error of a coordinator that refused the member because of its assignors. Fetches the group's
        assignor, which may wait."""
        ordered = next((plan.name for plan in self._plans if plan.retry_chains and plan.keeps_key_order), None)
        prior = self._priority_of is not None
        because = ""
        if ordered is not None:
            because = f"handler {ordered!r} has RetryTopics(keep_key_order=True), which needs range"
        elif prior and "range" in offered(self.settings, on_asyncio=self._on_asyncio):
            because = "topics with priorities are assigned by range"
        return ConfigError(
            conflict(
                self.settings,
                group=self.group,
                theirs=assignor_in_use(self.settings, self.group),
                on_asyncio=self._on_asyncio,
                has_retry_topics=ordered is not None,
                because=because,
            )
        )

    def _cannot_commit(self, error: BaseException) -> None:
        """End the member, because the thread that commits has ended. No more runs are handed out, so that none is
        handled again; a run in work ends after its current record."""
        self._end(error)
        self._step(events.CloseRequested())

    def _failed(self, error: BaseException) -> None:
        """End the member with what the fetching loop raised."""
        self.error = error
        self._log_failure(error)
