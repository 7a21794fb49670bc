"""A group member over the wire client: the third shell of the consumer's core, which fetches columns.

Three kinds of threads, and what each may do:

- the *poll thread* owns the membership: it joins, sends heartbeats, commits and leaves, and runs no user code, so that
  a slow handler costs the member nothing; partitions are let go beside its heartbeats;
- the *fetch thread* reads from the leaders and makes rows of what it reads (`fetching`);
- *workers* decode values and run handlers.

The session's lock also guards the plan of what to fetch: a pause or a seek counts from the step that decided it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Unpack
from uuid import uuid4

from ottla.app.member.handler_workers import Execute
from ottla.app.member.member_base import MemberOptions, MemberParts
from ottla.app.member.member_core import ANSWER_S
from ottla.app.member.start_offsets import Committed, known_starts
from ottla.app.member.threaded_member import ThreadedMember
from ottla.columnar.serving.broker_metrics import BrokerMetrics
from ottla.columnar.serving.coordinator import Coordinator, Offsets
from ottla.columnar.serving.fetching import Fetching
from ottla.columnar.serving.results import Identity, ResultWriting, RowTransactions
from ottla.columnar.serving.rows import ArrowRows
from ottla.config import Settings
from ottla.config.topic_presence import TOPICS_LONGEST_S
from ottla.consumer.model import events
from ottla.consumer.model.effects import (
    Commit,
    Effect,
    FindRetryPositions,
    LookAtLogs,
    PausePartitions,
    ResumePartitions,
    SeekPartition,
)
from ottla.consumer.model.memory import record_bytes
from ottla.consumer.partitions.flow import FlowLimits
from ottla.errors import AuthenticationError, BrokerUnavailable, RetriableError, UnknownTopic
from ottla.once.transaction_parts import TransactionPart
from ottla.processes import forks
from ottla.records import TopicPartition
from ottla.retrying import NotYet, try_again
from ottla.stepping import run
from ottla.telemetry import log_event
from ottla.wire_client.client_settings import WireSettings, connection_settings
from ottla.wire_client.cluster.cluster_client import EARLIEST, LATEST, Cluster
from ottla.wire_client.errors import BrokerRefused
from ottla.wire_client.group.classic_protocol import (
    Assign,
    Change,
    CoordinatorLost,
    ElectedLeader,
    Failed,
    Fenced,
    Membership,
    MembershipOptions,
    Revoke,
)
from ottla.wire_client.group.consumer_protocol import ConsumerProtocolMembership
from ottla.wire_client.group.group_offsets import committed_offsets
from ottla.wire_client.group.partition_assignors import assignors_of
from ottla.wire_client.net.connection_waiter import Waiter
from ottla_wire.protocol import ErrorCode

_POLL_S: Final = 0.05
_PAUSED_POLL_S: Final = 0.003
"""While a full partition is paused: how late its resume may be decided."""

_BROKERS_SESSION_MS: Final = 45_000
_BROKERS_HEARTBEAT_MS: Final = 5_000
"""Brokers' defaults: under KIP-848 these settings are the broker's."""

_LAST_COMMIT_MS: Final = 3_000
_ANSWER_MS: Final = 10_000
_PARTITION_BYTES: Final = 4 * 1024 * 1024
"""The largest share of one partition in a fetch, unless one was chosen: a batch of columns is worth its bytes."""

_OF_READING: Final = (
    "isolation.level",
    "check.crcs",
    "fetch.max.bytes",
    "max.partition.fetch.bytes",
    "fetch.max.wait.ms",
    "client.rack",
    "metadata.max.age.ms",
)

_BUFFERED: Final = 0.65
"""Of `FlowLimits.total_bytes`. The rest is for what comes and is opened, for the batch at a time that starved
partitions get over it, and for what allocators keep: with it the process takes no more than that (100 partitions,
128 MiB). Values of one length took 17 to 28 MiB beyond what is counted, those that Arrow copies because their lengths
differ 29 to 43."""

_FENCED: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)


class ColumnGroupMember(ThreadedMember):
    """Runs one group membership from `start` to `close`. Handlers of records in the same group get records."""

    def __init__(self, options: MemberOptions, *, execute: Mapping[str, Execute], **parts: Unpack[MemberParts]) -> None:
        flow = options.flow or FlowLimits()
        flow = replace(flow, total_bytes=max(1, round(flow.total_bytes * _BUFFERED)))
        super().__init__(replace(options, flow=flow), execute=execute, **parts)
        settings = options.settings
        self._broker_metrics = BrokerMetrics(self._hooks, client=self.client_name, now_ms=self._now_ms())
        self._wire = _wire_settings(settings).with_changes(on_exchange=self._broker_metrics.answered)
        self._columnar = {topic for plan in options.plans if plan.is_columnar for topic in plan.subscribed}
        self._cluster = Cluster(self._wire)
        self._membership = self._new_membership(settings)
        self._coordinator = Coordinator(
            self._cluster,
            self._membership,
            failed=lambda code, text: self._error_log.write("warning", code, text),
            timed_out=self._broker_metrics.timed_out,
            answer_ms=_ANSWER_MS,
        )
        self._fetching = Fetching(
            self._wire,
            name=f"ottla-{self.group}-fetch",
            lock=self._lock,
            reset=str(settings["auto.offset.reset"]),
            deliver=self._deliver,
            most_bytes=self._session.most_bytes,
            free_bytes=lambda: self._session.free_bytes,
            failed=self._fetching_failed,
            note=lambda code, text: self._error_log.write("warning", code, text),
            partition_failed=self._partition_failed,
            topic_gone=self._missing.gone,
            timed_out=self._broker_metrics.timed_out,
            throttled=self._throttled,
        )
        self._identity: Identity | None = None
        """Identity of this member at the coordinator, at a moment when the session knew all its changes."""
        self._transactions: RowTransactions | None = None
        if options.transactions is not None:
            self._transactions = RowTransactions(options.transactions, join=self._join, **self._commit_parts())
        self._results: ResultWriting | None = None
        if options.results is not None:
            self._results = ResultWriting(options.results, **self._commit_parts())
            for handler in options.results.handlers:
                handler.submit = self._results.submit
        self._waiter = Waiter()
        self._changes: deque[Change] = deque()
        self._lookups: deque[FindRetryPositions] = deque()
        self._releasing: _Releasing | None = None
        self._is_closing = False
        self._topics_next_s = 0.0

    # Life

    def start(self, should_give_up: Callable[[], bool] = lambda: False) -> None:
        """Connect, and begin to handle. Raises `BrokerUnavailable` or `UnknownTopic` with the facts."""
        self.reach(should_give_up)
        try:
            self._await_topics(lambda: self._is_stopping.is_set() or should_give_up())
        except BaseException:
            self._cluster.close()  # what has not started is not closed by its caller
            raise
        self._topics_next_s = time.monotonic() + self._wire.metadata_max_age_ms / 1_000
        for commits in self._commits_of_work():
            commits.start()
        self._workers.start()
        self._fetching.start()
        self._poll_thread = threading.Thread(target=self._run, name=f"ottla-{self.group}-poll", daemon=True)
        self._poll_thread.start()

    def stop(self) -> None:
        super().stop()
        self._waiter.wake()

    def seek_to_time(self, topic_partition: TopicPartition, timestamp_ms: int) -> int:
        self._check_time_to_seek(topic_partition, timestamp_ms)
        with Cluster(self._wire) as cluster:
            offset = cluster.list_offsets({topic_partition: timestamp_ms})[topic_partition][0]
            if offset < 0:
                offset = cluster.list_offsets({topic_partition: LATEST})[topic_partition][0]
        self._seek(topic_partition, offset)
        return offset

    def _forked(self) -> None:
        """Reset the member in a child process after fork: the threads are not there."""
        if self._poll_thread is not None:
            self.error = forks.carried_over("consumer", "threads and connections")
        super()._forked()

    # The poll thread

    def _run(self) -> None:
        try:
            while not self._is_stopping.is_set():
                self._pump(self._patience_s())
                self._carry_out()
        except BaseException as error:
            self._failed(error)
        finally:
            self._close()

    def _pump(self, timeout_s: float) -> None:
        """Make one turn: send the coordinator what is due, wait briefly for responses, and let time pass."""
        now_ms = self._clock.monotonic_ms()
        self._changes += self._coordinator.turn(now_ms)
        connection = self._coordinator.connection
        ready = self._waiter.wait(() if connection is None else (connection,), timeout_s)
        now_ms = self._clock.monotonic_ms()
        if ready and connection is self._coordinator.connection:
            self._changes += self._coordinator.receive(now_ms)
        self._changes += self._membership.tick(now_ms)
        self._step(events.Tick())
        self._renew_wall_time()
        for _ in self._measure_if_due():
            time.sleep(0)  # let workers have the session
        if self._broker_metrics.is_due(now_ms):
            asked = self._fetching.asked if connection is None else [*self._fetching.asked, connection.address]
            self._broker_metrics.report(now_ms, self._cluster.ids | self._fetching.ids, asked)

    def _patience_s(self) -> float:
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            longest_s = _PAUSED_POLL_S if self._session.is_throttled or self._session.should_hold(now_ms) else _POLL_S
            due_ms = self._session.next_wakeup_ms(now_ms)
        return max(0.001, min(longest_s, (due_ms - now_ms) / 1_000))

    def _carry_out(self) -> None:
        """Carry out changes of the membership since the last turn, and work queued for this thread."""
        while self._changes:
            if not self._carried_out(self._changes[0]):
                break  # a broker is away: heartbeats go on, and it is tried again
            self._changes.popleft()
        if self._releasing is not None:
            self._let_go_if_quiet()
        self._name_member()
        while self._lookups:
            self._find_retry_positions(self._lookups.popleft())
        missing = self._missing.to_ask()
        if missing:
            self._find_missing_topics(missing)
        if self._membership.leads and time.monotonic() >= self._topics_next_s:
            self._topics_next_s = time.monotonic() + self._wire.metadata_max_age_ms / 1_000
            counts = self._counts(self._topics)
            if counts:
                self._changes += self._membership.topics_seen(counts, self._clock.monotonic_ms())

    def _find_missing_topics(self, asked: Collection[str]) -> None:
        counts = self._counts(asked)
        if counts is None:
            return
        for name in asked:
            if name in counts:
                self._missing.found(name)
            elif self._cluster.refusals.get(name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._missing.gone(name)
        if counts:
            self._changes += self._membership.topics_seen(counts, self._now_ms())
            self._fetching.wake()

    def _carried_out(self, change: Change) -> bool:
        match change:
            case Assign(partitions):
                return self._is_closing or self._assigned(partitions)
            case Revoke(partitions):
                self._begin_to_let_go(partitions)
            case Fenced(partitions):
                self._lost(partitions)
            case ElectedLeader(topics):
                counts = self._counts(topics)
                if counts is None:
                    return False
                self._changes += self._membership.led(counts, self._clock.monotonic_ms())
            case CoordinatorLost(reason):
                self._error_log.write("info", "coordinator_moved", reason)
            case Failed(error):
                if isinstance(error, AuthenticationError):
                    refused = self.asking.refused("GROUP_AUTHORIZATION_FAILED", str(error), servers=self._servers)
                    self._end(refused)
                elif ErrorCode.INCONSISTENT_GROUP_PROTOCOL.name in str(error):
                    self._end(self._assignor_conflict())
                else:
                    self._end(error)
        return True

    # Assignment

    def _assigned(self, partitions: Collection[TopicPartition]) -> bool:
        names = [name for name in partitions if name in self._membership.owned]
        if not names:
            return True
        committed = self._committed_of(names)
        if committed is None:
            return False
        begins = run(self._begin.find(names, committed))
        starts = known_starts(begins)
        with self._changed:
            for name in names:
                found = committed.get(name)
                position = starts.get(name) if found is None else found[0]
                self._fetching.plan.add(name, position, begins_at_start=begins.get(name, 0) is None)
            later = self._perform_now(self._session.step(events.Assigned(names, committed, starts), self._now_ms()))
            self._changed.notify_all()
        self._perform_later(later)
        self._fetching.wake()
        self._watch.assigned(len(names), self._now_ms())
        return True

    def _log_ends_of(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        try:
            lows = self._cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
            ends = self._cluster.list_offsets(dict.fromkeys(partitions, LATEST))
        except (RetriableError, UnknownTopic) as error:
            self._error_log.write("warning", "starts_unread", str(error))
            return {}
        return {name: (lows[name][0], ends[name][0]) for name in partitions}

    def _committed_of(self, partitions: Sequence[TopicPartition]) -> Committed | None:
        try:
            return committed_offsets(self._cluster, self.group, partitions)
        except RetriableError as error:
            self._error_log.write("warning", "committed_offsets_unread", str(error))
            return None

    def _begin_to_let_go(self, partitions: Collection[TopicPartition]) -> None:
        names = list(partitions)
        with self._lock:
            self._fetching.plan.remove(names)
        self._step(events.Revoking(names))
        self._workers.give_back_cancelled()
        now_ms = self._now_ms()
        self._releasing = _Releasing(names, began_ms=now_ms, deadline_ms=now_ms + round(self._drain_s * 1_000))

    def _let_go_if_quiet(self) -> None:
        releasing = self._releasing
        assert releasing is not None
        with self._lock:
            is_quiet = self._session.is_quiet(releasing.names)
        if not is_quiet and self._now_ms() < releasing.deadline_ms:
            return
        self._releasing = None
        # The last commit goes behind those that wait. Dropped before it, they would count as done: the session has
        # named their positions already, and would leave them out of the last one.
        self._step(events.Revoked(releasing.names))
        with self._lock:
            self._coordinator.forget(releasing.names)
        self._membership.revoke_done(self._now_ms())
        self._missing.suspect(releasing.names)
        self._watch.partitions_left("revoked", len(releasing.names), began_ms=releasing.began_ms, now_ms=self._now_ms())

    def _lost(self, partitions: Collection[TopicPartition]) -> None:
        names, began_ms = list(partitions), self._now_ms()
        self._releasing = None
        with self._lock:
            self._identity = None
            self._fetching.plan.remove(names)
            self._coordinator.forget(names)
        self._step(events.Lost(names))
        self._missing.suspect(names)
        self._workers.give_back_cancelled()
        self._watch.partitions_left("lost", len(names), began_ms=began_ms, now_ms=self._now_ms())

    def _counts(self, topics: Collection[str]) -> dict[str, int] | None:
        """Return the partition counts of these topics; None until a broker responds."""
        try:
            self._cluster.refresh(topics)
            self._pass_topic_ids()
            return self._known_counts(topics)
        except RetriableError as error:
            self._error_log.write("warning", "topics_unread", str(error))
            return None

    def _known_counts(self, topics: Collection[str]) -> dict[str, int]:
        return {name: len(found.leaders) for name in topics if (found := self._cluster.known(name)) is not None}

    # Records

    def _deliver(self, rows: ArrowRows, turn: int, size_bytes: int) -> None:
        """Deliver what was fetched. In the fetch thread."""
        name = rows.partition
        fetched = events.Fetched(name, rows, size_bytes)
        if name.topic not in self._columnar:
            records = list(rows)
            fetched = events.Fetched(name, records, record_bytes(records))
        with self._lock:
            if not self._fetching.plan.is_current(name, turn):
                return
            later = self._perform_now(self._session.step(fetched, self._clock.monotonic_ms()))
            self._changed.notify_all()
        self._perform_later(later)
        self._count_fetched(fetched)

    def _fetching_failed(self, error: BaseException) -> None:
        if isinstance(error, BrokerRefused) and "TOPIC_AUTHORIZATION_FAILED" in str(error):
            error = self.asking.refused("TOPIC_AUTHORIZATION_FAILED", str(error), servers=self._servers)
        self._end(error)

    def _throttled(self, node_id: int, address: str, throttle_ms: int) -> None:
        self.throttling.on_throttled(broker=node_id, throttle_ms=throttle_ms)
        self._broker_metrics.throttled(address, throttle_ms)

    def _partition_failed(self, name: TopicPartition, text: str) -> None:
        self._step(events.ClientFailed(name, text))

    # Effects

    def _for_client(self, effect: Effect) -> None:
        plan = self._fetching.plan
        match effect:
            case PausePartitions(partitions):
                plan.pause(partitions)
            case ResumePartitions(partitions):
                plan.resume(partitions)
                self._fetching.wake()
            case SeekPartition(name, offset):
                plan.seek(name, offset)
                self._fetching.wake()
            case LookAtLogs(epochs, tails):
                positions = {name: plan.position(name) for name in epochs}
                known = {name: position for name, position in positions.items() if position is not None}
                self._offset_poller.ask(events.LookedAt(epochs, known, tails))
            case FindRetryPositions():
                self._lookups.append(effect)
                self._waiter.wake()
            case Commit(offsets):
                sent_ms = self._now_ms()
                self._coordinator.commit(
                    offsets, lambda codes, reason: self._commit_answered(len(offsets), sent_ms, codes, reason)
                )
                self._waiter.wake()

    def _commit_answered(
        self, partitions: int, sent_ms: int, codes: Mapping[TopicPartition, ErrorCode], reason: str | None
    ) -> None:
        self._step(self._commit_result(partitions, sent_ms, codes, reason) or events.CommitSucceeded({}))

    def _commit_result(
        self, partitions: int, sent_ms: int, codes: Mapping[TopicPartition, ErrorCode], reason: str | None
    ) -> events.CommitFailed | None:
        """Report a commit. Returns why it failed; None if it did not."""
        code = next((code for code in codes.values() if code is not ErrorCode.NONE), None)
        is_failed = code is not None or reason is not None
        fenced = code in _FENCED if is_failed else None
        self._watch.committed(partitions=partitions, sent_ms=sent_ms, now_ms=self._now_ms(), is_fenced=fenced)
        return events.CommitFailed(reason or (code.name if code else ""), bool(fenced)) if is_failed else None

    def _commit_last(self, offsets: Offsets) -> None:
        """Commit a last time, on the poll thread. Heartbeats go on; a commit that is refused because the group
        rebalances, or whose connection was cut, is sent again while its partitions are ours."""
        deadline_ms = self._now_ms() + _LAST_COMMIT_MS
        left = dict(offsets)
        while left:
            answers: list[tuple[Mapping[TopicPartition, ErrorCode], str | None]] = []
            sent_ms = self._now_ms()
            with self._lock:
                self._coordinator.commit(left, lambda codes, reason, into=answers: into.append((codes, reason)))  # type: ignore[misc]
            while not answers and self._now_ms() < deadline_ms:
                self._pump(0.01)
            codes, reason = answers[0] if answers else ({}, "no answer in time")
            failed = self._commit_result(len(left), sent_ms, codes, reason)
            if failed is None:
                return
            ours = self._membership.owned
            left = {name: left[name] for name in left if name in ours}
            if not left or self._now_ms() >= deadline_ms or not self._membership.is_member:
                fields = {"error": failed.error, "is_fenced": failed.is_fenced}
                log_event("final_commit_failed", "warning", {"group": self.group, **fields})
                return

    def _find_retry_positions(self, effect: FindRetryPositions) -> None:
        asked, positions = effect.partitions, {}
        try:
            committed = committed_offsets(self._cluster, self.group, asked)
            low = self._cluster.list_offsets(dict.fromkeys(asked, EARLIEST))
            ends = self._cluster.list_offsets(dict.fromkeys(asked, LATEST))
            for name in asked:
                start = committed[name][0] if name in committed else low[name][0]
                positions[name] = (start, ends[name][0])
        except RetriableError as error:
            self._error_log.write("warning", "retry_positions_unread", str(error))  # the session asks again
        self._step(events.RetryPositionsFound(asked, positions))

    # The end

    def _close(self) -> None:
        """Drain, commit, and leave, with heartbeats until the end."""
        try:
            self._is_stopping.set()
            self._is_closing = True
            self._fetching.stop()
            self._step(events.CloseRequested())
            self._workers.give_back_cancelled()
            deadline_ms = self._now_ms() + round(self._drain_s * 1_000)
            while not self._is_quiet() and self._now_ms() < deadline_ms:
                self._pump(0.01)
                self._only_losses()
                self._name_member()
            self._only_losses()
            self._step(events.Closed())
            self._coordinator.leave()
        except BaseException as error:
            self.error = self.error or error
        finally:
            with self._lock:
                self._coordinator.give_up_commits("the consumer is closed")
            self._coordinator.close()
            self._cluster.close()
            self._workers.stop()
            for commits in self._commits_of_work():
                commits.stop()
            self._fetching.join(5.0)
            self._offset_poller.stop()
            self._stop_reporting()
            self._waiter.close()
            self._is_stopped.set()
            self._on_stop()

    def _only_losses(self) -> None:
        """Apply only losses while the member closes: it joins no rebalance, but must not commit lost partitions."""
        while self._changes:
            change = self._changes.popleft()
            if isinstance(change, Fenced):
                self._lost(change.partitions)
            elif isinstance(change, Failed):
                self.error = self.error or change.error

    # Works that are committed

    def write(self, work: TransactionPart) -> None:
        """Have it written, outside of transactions."""
        assert self._results is not None
        self._results.submit(work)

    def _commits_of_work(self) -> list[RowTransactions | ResultWriting]:
        return [commits for commits in (self._transactions, self._results) if commits is not None]

    def _name_member(self) -> None:
        """Allow commits under this generation; called on the poll thread. Before the changes of a generation are
        executed, a commit could include partitions that another member owns."""
        if self._transactions is None or self._changes:
            return
        if self._membership.is_member and self._membership.takes_commits:
            with self._lock:
                self._identity = self._membership.identity()

    def _join(self, epochs: Mapping[TopicPartition, int]) -> Identity:
        """Return the identity to commit with. In the thread of transactions."""
        with self._lock:
            identity = self._identity
            if identity is None:
                raise RetriableError(f"group {self.group!r}: nothing is assigned now")
            self._check_still_has(epochs, identity["generation_id"])
        return identity

    # Small parts

    def _new_membership(self, settings: Settings) -> Membership:
        is_of_broker = settings.get("group.protocol") == "consumer"
        options: MembershipOptions = {
            "group": self.group,
            "topics": self._topics,
            "session_timeout_ms": _BROKERS_SESSION_MS if is_of_broker else int(settings["session.timeout.ms"]),
            "rebalance_timeout_ms": int(settings["max.poll.interval.ms"]),
            "heartbeat_ms": _BROKERS_HEARTBEAT_MS if is_of_broker else int(settings["heartbeat.interval.ms"]),
            "backoff_ms": self._wire.retry_backoff_ms,
            "instance_id": settings.get("group.instance.id") or None,
            "rack": self._wire.client_rack,
        }
        if is_of_broker:
            assignor = settings.get("group.remote.assignor") or None
            return ConsumerProtocolMembership(member_id=str(uuid4()), assignor=assignor, **options)
        return Membership(assignors=assignors_of(str(settings["partition.assignment.strategy"])), **options)

    def _await_topics(self, should_give_up: Callable[[], bool]) -> None:
        wait = self.topics_awaited(self._topics, should_give_up)
        until_s = time.monotonic() + self._answer_s

        def attempt() -> None:
            try:
                self._cluster.refresh(self._topics)
            except BrokerUnavailable as error:
                if time.monotonic() > until_s or should_give_up():
                    raise BrokerUnavailable(
                        f"no Kafka broker answered at {self._servers} within {self._answer_s:g} s ({error}); "
                        "check bootstrap.servers and that the broker runs"
                    ) from error
                raise NotYet(str(error)) from error
            refused = [
                name
                for name, code in self._cluster.refusals.items()
                if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED and name in self._topics
            ]
            if refused:
                raise wait.refusal()
            existing = {name for name in self._topics if self._cluster.known(name) is not None}
            run(wait.checking(existing, time.monotonic(), self._all_topics))

        try_again(attempt, what="topics", longest_s=TOPICS_LONGEST_S)
        self._pass_topic_ids()
        self._begin.joined(self._known_counts(self._topics))

    def _all_topics(self) -> Collection[str]:
        try:
            return self._cluster.topic_names()
        except BrokerUnavailable:
            return ()

    def _pass_topic_ids(self) -> None:
        known = {name: self._cluster.known(name) for name in self._topics}
        self._membership.topic_ids = {
            found.topic_id: name for name, found in known.items() if found is not None and found.topic_id is not None
        }

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()


class _Releasing(NamedTuple):
    """Partitions on their way out."""

    names: list[TopicPartition]
    began_ms: int
    deadline_ms: int


def _wire_settings(settings: Settings) -> WireSettings:
    """Return the wire client's settings for a consumer's settings. Raises ConfigError for unsupported ones (GSSAPI,
    ...).
    """
    base = connection_settings(settings, _OF_READING)
    partition_bytes = base.max_partition_fetch_bytes
    if not settings.was_chosen("max.partition.fetch.bytes"):
        partition_bytes = max(partition_bytes, _PARTITION_BYTES)
    return base.with_changes(
        max_partition_fetch_bytes=partition_bytes,
        request_timeout_ms=min(base.request_timeout_ms, _ANSWER_MS),
        api_timeout_ms=round(ANSWER_S * 1_000),
        receive_message_max_bytes=max(base.receive_message_max_bytes, base.fetch_max_bytes + 1024 * 1024),
    )
