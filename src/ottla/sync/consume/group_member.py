"""One threaded group member: a confluent-kafka client, a session, and worker threads between them.

Three kinds of threads, and what each may do:

- the *poll thread* owns the client: it polls, pauses, commits and closes, and runs no user code, so that
  `max.poll.interval.ms` holds however slow a handler is; the client's callbacks (rebalances, commits) run on it;
- *workers* run handlers; a worker that finished a run takes the session's lock, reports the run, and usually gets its
  next run in the same step, without a queue between;
- the dead letter producer's own thread reports acknowledgements.

No other thread calls the client. A poll holds the client's own lock while it waits, and that lock is not fair: a call
from another thread beside a loop of polls may wait for ever (confluent-kafka 2.16). So what the session wants of the
client goes into a queue that the poll thread empties between two polls; the polls are short while something is paused.

Our own lock guards the session. It is taken once per fetched batch and once per run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final, TypeVar, Unpack

from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.cimpl import Consumer  # an instrumentor replaces the package's own

from ottla.app.member.handler_workers import Execute
from ottla.app.member.member_base import MemberOptions, MemberParts
from ottla.app.member.member_core import ANSWER_S
from ottla.app.member.start_offsets import Committed, known_starts
from ottla.app.member.threaded_member import ThreadedMember
from ottla.consumer.model import events
from ottla.consumer.model.effects import Commit, Effect, SeekPartition
from ottla.consumer.scheduling.intake import Intake, Slice
from ottla.errors import BrokerUnavailable, ConfigError, LifecycleError, RetriableError
from ottla.processes import forks
from ottla.records import Header, TopicPartition
from ottla.stepping import run
from ottla.sync.client.callbacks import guarded
from ottla.sync.client.client_errors import (
    error_of,
    is_inconsistent_protocol,
    is_unknown_topic,
    topics_named,
)
from ottla.sync.client.headers import HeaderReader
from ottla.sync.client.statistics import on_statistics, with_statistics
from ottla.sync.client.throttled import on_throttle
from ottla.sync.consume.client_work import ClientWork, PollCalls
from ottla.sync.consume.group_metadata import generation_of
from ottla.sync.consume.leaving import close_client
from ottla.sync.consume.lookups import (
    check_reachable,
    client_partitions,
    committed_offsets,
    log_ends_of,
    offset_at_time,
)
from ottla.sync.consume.messages import ClientError, parted, to_records
from ottla.sync.consume.subscribed_topics import all_topics, await_topics, has_topic
from ottla.sync.consume.transactions import Transactions
from ottla.telemetry import log_event

T = TypeVar("T")

_POLL_S: Final = 0.05
_PAUSED_POLL_S: Final = 0.003
"""While a full partition is paused: how late its resume may reach the client."""

_HOLD_S: Final = 0.001
_MOST_MESSAGES: Final = 600
"""Of one call, unless `max.poll.records` says otherwise. Each batch has a price of its own, whatever its size: a lock,
a step, a turn. Python looks for garbage after 700 new objects, which messages are and records are not. So it does not
look because of messages as long as no more of them are there at a time; when it does, all threads wait for 20 to 40 ms.
Headers are objects, too: with some it looks as before."""
_MOST_OVERTAKEN: Final = 20_000
"""Of one turn where topics have priorities: what is urgent may stand behind all that the client has fetched, and what
is not seen cannot go first."""
_LAST_COMMIT_MS: Final = 3_000
_REJOIN_S: Final = 0.05
"""Between two tries of the last commit, while the group rebalances."""
_UNREAD_S: Final = 0.1
"""How long a message waits whose headers could not be read again."""


class GroupMember(ThreadedMember):
    """Runs one group membership from `start` to `close`. Base of the runner's members and of `Consumer`."""

    def __init__(self, options: MemberOptions, *, execute: Mapping[str, Execute], **parts: Unpack[MemberParts]) -> None:
        super().__init__(options, execute=execute, **parts)
        is_one = len(self._topics) == 1 and not self._topics[0].startswith("^")
        self._only_topic = self._topics[0] if is_one else None
        strategy = str(options.settings.get("partition.assignment.strategy") or "")
        self._is_incremental = options.settings["group.protocol"] == "consumer" or "cooperative" in strategy
        self._most_messages = int(options.settings.get("max.poll.records", _MOST_MESSAGES))
        self._most_batches = 1 if self._priority_of is None else -(-_MOST_OVERTAKEN // self._most_messages)
        self._intake = Intake(self._priority_of)
        self._calls = PollCalls()
        self._headers = HeaderReader(options.settings)
        self._unread: dict[TopicPartition, int] = {}
        """Offsets to read again in partitions with a message whose headers are temporarily unavailable."""
        self._is_leaving = False
        """Whether the session has sent its last commit: partitions revoked later have nothing to commit."""
        self._work = ClientWork(**self._command_parts())
        self._work.is_over = self._is_stopped.is_set
        self._transactions: Transactions | None = None
        if options.transactions is not None:
            self._transactions = Transactions(options.transactions, check=self._check_still_has, **self._commit_parts())
        forks.owns(self)

    # Life

    def start(self, should_give_up: Callable[[], bool] = lambda: False) -> None:
        self.reach(should_give_up)
        config = guarded(
            with_statistics({"log_level": 0, **self.settings.to_confluent()}, self._hooks),
            stats_cb=on_statistics(self._hooks, self.client_name),
            on_commit=self._until_stopped(self._work.on_commit),
            error_cb=self._until_stopped(self._on_client_error),
            throttle_cb=on_throttle(self.throttling),
        )
        try:
            self._client = Consumer(config)
        except KafkaException as error:
            raise ConfigError(f"librdkafka refuses the settings: {error.args[0].str()}") from error
        except (TypeError, ValueError) as error:
            raise ConfigError(f"confluent-kafka refuses the settings: {error}") from error
        try:
            check_reachable(self._client, self._servers, self._answer_s, topic=self._topics[0])
            self._begin.joined(await_topics(self._client, self._own_topics_awaited(should_give_up)))
            if self._transactions is not None:
                self._transactions.start()
            self._work.client = self._client
            self._workers.start()  # before there is a membership to leave: the machine may have no threads left
            self._client.subscribe(
                self._topics,
                on_assign=self._until_stopped(self._on_assign),
                on_revoke=self._until_stopped(self._on_revoke),
                on_lost=self._until_stopped(self._on_lost),
            )
        except BaseException:
            self._workers.stop()
            if self._transactions is not None:
                self._transactions.stop()
            self._client.close()
            raise
        self._poll_thread = threading.Thread(target=self._poll_forever, name=f"ottla-{self.group}-poll", daemon=True)
        self._poll_thread.start()

    # Questions and verbs

    def _seek(self, topic_partition: TopicPartition, offset: int) -> None:
        self._on_poll_thread(lambda: self._step(events.SeekRequested(topic_partition, offset)))

    def seek_to_time(self, topic_partition: TopicPartition, timestamp_ms: int) -> int:
        self._check_time_to_seek(topic_partition, timestamp_ms)

        def look_up_and_seek() -> int:
            offset = offset_at_time(self._client, topic_partition, timestamp_ms, ANSWER_S)
            self._step(events.SeekRequested(topic_partition, offset))
            return offset

        try:
            return self._on_poll_thread(look_up_and_seek)
        except KafkaException as error:
            raise self._error_of(error.args[0]) from error

    # For callers that pull

    def commit_now(self, timeout_s: float = 10.0) -> None:
        """Commit finished records and wait for the response. Raises if the coordinator refuses."""
        with self._changed:
            offsets = self._session.committable(self._clock.monotonic_ms())
            if offsets:
                self._perform_now([Commit(offsets)])
            sent = self._work.commits_sent
            if not self._changed.wait_for(lambda: self._work.commits_answered >= sent, timeout_s):
                raise BrokerUnavailable(
                    f"{self.settings['bootstrap.servers']} did not answer a commit within {timeout_s:g} s"
                )
            error = self._work.take_commit_error()
        if error is not None:
            raise self._error_of(error)

    def membership(self, epochs: Mapping[TopicPartition, int]) -> bytes:
        """Return what names this member and its generation to the coordinator (KIP-447).

        Raises `RetriableError` unless it has these partitions, without interruption since these epochs.
        """

        def ask() -> bytes:
            # No rebalance is half done here: its callbacks run on this thread. So the generation fits the partitions.
            metadata: bytes = self._client.consumer_group_metadata()
            self._check_still_has(epochs, generation_of(metadata))
            return metadata

        return self._on_poll_thread(ask)

    def _on_poll_thread(self, call: Callable[[], T]) -> T:
        """Run `call` between two polls, and wait for its result.

        Only that thread may call the client. And a seek must not fall between a batch that was polled and the session
        that takes it in: the batch would count for the time after the seek.
        """
        if threading.current_thread() is self._poll_thread:
            return call()
        return self._calls.ask(
            call,
            is_over=self._is_stopped.is_set,
            closed=lambda: LifecycleError(f"consumer of group {self.group!r} is closed"),
        )

    def _forked(self) -> None:
        """Reset the member in a child process after fork. The threads are not there and may have held a lock, so
        nothing may wait."""
        if self._client is None:
            return
        self.error = forks.carried_over("consumer", "threads and connections")
        super()._forked()
        self._calls = PollCalls()

    def _c_clients(self) -> Iterable[object | None]:
        return (self._client,)

    # The poll thread

    def _poll_forever(self) -> None:
        try:
            while not self._is_stopping.is_set():
                self._turn()
        except BaseException as error:
            self._failed(error)
        finally:
            self._close()

    def _turn(self) -> None:
        self._calls.run()
        self._work.serve()  # and what those calls want of the client, before it gives more
        self._find_missing_topics()
        self._renew_wall_time()
        for _ in self._measure_if_due():
            time.sleep(0)  # let workers have the session
        if self._transactions is not None:
            self._transactions.look(self._client)
        self._poll_once()

    def _find_missing_topics(self) -> None:
        answers: dict[str, bool] = {}
        for name in self._missing.to_ask():
            is_there = has_topic(self._client, name)
            if is_there is None:
                break  # no broker responds: the polls must not wait for each topic
            answers[name] = is_there
        back = {name for name, is_there in answers.items() if is_there and name in self._missing}
        if back:
            # The client looks at its subscription again when it is told of all topics, and of itself after minutes.
            back &= all_topics(self._client)
        for name, is_there in answers.items():
            if not is_there:
                self._missing.gone(name)
            elif name in back or name not in self._missing:
                self._missing.found(name)

    def _poll_once(self) -> None:
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            is_held = self._session.should_hold(now_ms) or not self._intake.has_room(self._session.free_bytes)
            longest_s = _PAUSED_POLL_S if self._session.is_throttled else _POLL_S
            wait_s = min(longest_s, (self._session.next_wakeup_ms(now_ms) - now_ms) / 1_000)
        if self._intake.is_empty:
            self._poll(is_held=is_held, wait_s=wait_s)
        else:
            self._take_in([], asks=not is_held)
            self._step(events.Tick())

    def _poll(self, *, is_held: bool, wait_s: float) -> None:
        if is_held:
            self._is_stopping.wait(_HOLD_S)
            self._step(events.Tick())
            return
        message = self._client.poll(max(0.001, wait_s))
        if message is None:
            self._step(events.Tick())
            return
        self._take_in([message], asks=True)

    def _take_in(self, messages: list[Any], *, asks: bool) -> None:
        """Pass these messages to the session, and the client's buffered ones if it is to be polled."""
        errors: list[ClientError] = []
        with nullcontext() if self._poll_priority is None else self._poll_priority:
            if asks:
                self._ask(messages, errors)
            else:
                self._keep(messages, errors)
            for each in self._intake.round():
                self._take_in_slice(each)
        if self._unread:
            with self._lock:
                for name in self._unread.keys() - self._work.sought():
                    self._work.add(SeekPartition(name, self._unread[name]))
            self._unread.clear()
            self._is_stopping.wait(_UNREAD_S)
        for reported in errors:
            self._on_message_error(reported)

    def _ask(self, messages: list[Any], errors: list[ClientError]) -> None:
        """Keep these records and those buffered by the client: one batch, or all if topics have priorities."""
        most = self._most_messages
        for _ in range(self._most_batches):
            # `consume(n, timeout)` waits until it is full; this way a trickle has no delay and a flood has its batches.
            messages += self._client.consume(most - len(messages), 0)
            is_all = len(messages) < most
            self._keep(messages, errors)
            messages.clear()  # they are gone before there are others
            if is_all or self._unread or not self._intake.has_room(self._session.free_bytes):
                return

    def _keep(self, messages: list[Any], errors: list[ClientError]) -> None:
        """Keep what the client returned, as records to be taken in. What was fetched before a seek would count as
        fetched after it (a rebalance may cause one)."""
        by_partition, problems = parted(messages, only_topic=self._only_topic)
        errors += problems
        if not by_partition:
            return
        with self._lock:
            sought = self._work.sought()
            epochs = {name: self._session.epoch_of(name) for name, _ in by_partition if name not in sought}
        for name, given in by_partition:
            epoch = epochs.get(name)
            if epoch is not None:
                records, size_bytes = to_records(name, given, read_again=self._read_again)
                if records:
                    self._intake.put(name, records, epoch=epoch, size_bytes=size_bytes)

    def _take_in_slice(self, given: Slice) -> None:
        name = given.topic_partition
        fetched = events.Fetched(name, given.messages, given.size_bytes, given.behind)
        with self._lock:
            if self._session.epoch_of(name) != given.epoch:
                self._intake.forget(name)
                return
            later = self._perform_now(self._session.step(fetched, self._clock.monotonic_ms()))
        self._perform_later(later)
        self._count_fetched(fetched)

    def _read_again(self, message: Any) -> list[Header] | None:
        """Return the headers of a message that cannot show them, or None to be given it again a little later."""
        try:
            return self._headers.read_again(message)
        except RetriableError as error:
            self._unread[TopicPartition(message.topic(), message.partition())] = message.offset()
            self._error_log.write("warning", "headers_unread", str(error))
            return None

    def _close(self) -> None:
        """Drain, commit, and leave, polling until the end: a rebalance in progress must not wait for this member."""
        try:
            self._is_stopping.set()  # also after an error: the last commit goes the way of those before it, behind them
            self._step(events.CloseRequested())
            self._workers.give_back_cancelled()
            deadline_ms = self._clock.monotonic_ms() + round(self._drain_s * 1_000)
            while not self._is_quiet() and self._clock.monotonic_ms() < deadline_ms:
                self._work.serve()
                self._client.poll(0.01)
                if self._transactions is not None:
                    self._transactions.look(self._client)
            self._is_leaving = True
            self._step(events.Closed())
            self._work.serve()
            self._await_commits(deadline_ms + _LAST_COMMIT_MS)
            close_client(self._client, group=self.group, settings=self.settings)
            self._headers.close()
        except BaseException as error:
            self.error = self.error or error
        finally:
            self._workers.stop()
            if self._transactions is not None:
                self._transactions.stop()
            self._offset_poller.stop()
            self._stop_reporting()
            self._is_stopped.set()
            self._on_stop()

    def _await_commits(self, deadline_ms: int) -> None:
        """Let the last commit be answered. Bounded: without a coordinator a service must still end."""
        while True:
            while self._work.commits_answered < self._work.commits_sent:
                if self._clock.monotonic_ms() > deadline_ms:
                    log_event("final_commit_failed", "warning", {"group": self.group, "error": "no answer in time"})
                    return
                self._client.poll(0.01)
            if self._clock.monotonic_ms() > deadline_ms or not self._work.commit_last_again():
                return
            self._client.poll(_REJOIN_S)

    # The client's callbacks, on the poll thread

    def _until_stopped(self, callback: Callable[..., None]) -> Callable[..., None]:
        """Return a callback that does nothing once the member has stopped. A client that was abandoned, because
        no broker responds, calls back for half a minute, when the member's hooks and logs may be gone."""

        def call(*arguments: Any) -> None:
            if not self._is_stopped.is_set():
                callback(*arguments)

        return call

    def _on_assign(self, _client: Any, partitions: list[ClientPartition]) -> None:
        if self._transactions is not None:
            self._transactions.look(self._client, is_new=True)
        committed = committed_offsets(self._client, partitions, group=self.group) if partitions else None
        names = [TopicPartition(p.topic, p.partition) for p in partitions]
        begins = run(self._begin.find(names, committed))
        if begins:
            self._begin_at(names, begins)
        self._step(events.Assigned(names, committed, known_starts(begins)))
        self._watch.assigned(len(partitions), self._clock.monotonic_ms())

    def _log_ends_of(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        return log_ends_of(self._client, partitions, on_error=self._work.log_lookup_error)

    def _committed_of(self, partitions: Sequence[TopicPartition]) -> Committed | None:
        return committed_offsets(self._client, client_partitions(partitions), group=self.group)

    def _begin_at(self, names: list[TopicPartition], begins: Mapping[TopicPartition, int | None]) -> None:
        """Assign these partitions with their offsets: in the callback of an assignment, this replaces the client's
        own."""
        places = {name: OFFSET_BEGINNING if start is None else start for name, start in begins.items()}
        assign = self._client.incremental_assign if self._is_incremental else self._client.assign
        assign([ClientPartition(*name, places.get(name, OFFSET_INVALID)) for name in names])

    def _on_revoke(self, _client: Any, partitions: list[ClientPartition]) -> None:
        # Nothing that is waited for here needs this thread: workers finish on their own, dead letters are
        # acknowledged on the producer's thread.
        names = [TopicPartition(p.topic, p.partition) for p in partitions]
        began_ms = self._clock.monotonic_ms()
        self._step(events.Revoking(names))
        self._workers.give_back_cancelled()
        self._wait(lambda: self._session.is_quiet(names), self._drain_s)
        self._work.commit_leaving(names)
        self._leave(events.Revoked(names), partitions)
        now_ms = self._clock.monotonic_ms()
        self._watch.partitions_left("revoked", len(names), began_ms=began_ms, now_ms=now_ms)

    def _on_lost(self, _client: Any, partitions: list[ClientPartition]) -> None:
        began_ms = self._clock.monotonic_ms()
        self._leave(events.Lost([TopicPartition(p.topic, p.partition) for p in partitions]), partitions)
        self._watch.partitions_left("lost", len(partitions), began_ms=began_ms, now_ms=self._clock.monotonic_ms())

    def _leave(self, event: events.Revoked | events.Lost, partitions: list[ClientPartition]) -> None:
        with self._changed:
            self._work.forget(event.partitions)
            later = self._perform_now(self._session.step(event, self._clock.monotonic_ms()))
            self._changed.notify_all()
        self._perform_later(later)
        self._missing.suspect(event.partitions)
        # librdkafka keeps a pause for the next time that this member gets the partition; the session starts
        # afresh then, and would never resume it.
        self._work.call(self._client.resume, partitions)

    def _on_client_error(self, error: KafkaError) -> None:
        self._error_log.write("warning", error.name(), error.str())
        if error.fatal():
            self._end(self._error_of(error))

    def _on_message_error(self, reported: ClientError) -> None:
        error, place, topic = reported
        if error.code() == KafkaError._PARTITION_EOF:
            return
        if is_unknown_topic(error):
            gone = [topic] if topic in self._topics else topics_named(error, self._topics)
            for name in gone:
                self._missing.gone(name)
            if gone:
                return
        ends = self._error_of(error)
        if not isinstance(ends, RetriableError):
            raise ends
        self._error_log.write("warning", error.name(), error.str())
        if place is not None:
            self._step(events.ClientFailed(place, f"{error.name()}: {error.str()}"))

    def _error_of(self, error: KafkaError) -> Exception:
        if is_inconsistent_protocol(error):
            return self._assignor_conflict()
        return error_of(error, self._servers, topics=self._topics, asking=self.asking)

    # Effects

    def _for_client(self, effect: Effect) -> None:
        self._work.add(effect)

    def _commit_last(self, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Commit a last time before the partitions are given up. If it fails, their next owner delivers the records
        again.

        In the callback of a rebalance it is waited for, also while the member stops: the client joins again as soon as
        the callback returns, and what it sends then names a past generation.
        """
        if self._is_leaving:
            with self._lock:
                self._work.commit_last(offsets)  # `_close` waits for the answer, and not for ever
        else:
            self._work.commit_and_wait(offsets)
