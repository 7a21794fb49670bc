"""`Consumer`: records by iterating or polling, with everything that handlers have underneath.

    with Consumer("orders", group="billing", bootstrap_servers="localhost:9092", value=Avro(Order)) as consumer:
        for record in consumer:
            charge(record.value)             # done when the next record is asked for

    for record in consumer.poll(timeout_s=1.0, max_records=100):
        charge(record.value)
        consumer.ack(record)

Polling the client, heartbeats and commits run in the background, so the time between two calls does not matter to the
group. Records come fairly from all partitions. With a `dead_letter_topic`, what cannot be decoded goes there and is not
seen here; without one it is given out as a record whose value is a `Malformed`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Generic, Self, Unpack, overload

from ottla.app.pulling import decoder, malformed_part, pull_plan
from ottla.app.signature import ConsumerOptions, Value
from ottla.config import consumer_settings, settings_beside
from ottla.consumer.commit.commits import CommitPolicy, InTransactions
from ottla.consumer.model.events import RunFinished
from ottla.consumer.model.run import Run
from ottla.consumer.partitions.flow import FlowLimits
from ottla.consumer.partitions.plan import DEFAULT_QUANTUM_RECORDS
from ottla.consumer.pulled.pull import OpenRun, PullBook
from ottla.consumer.pulled.transactional_reads import refuse_to_settle, transactional_reads
from ottla.consumer.readiness.health import DEFAULT_UNREADY_AFTER_S, Health
from ottla.errors import ConfigError, LifecycleError
from ottla.failures.exceptions import ExceptionTable, Failure
from ottla.failures.outcomes import Dead, Retry
from ottla.failures.retry import RetryPolicy
from ottla.producer import forks
from ottla.records import FailureKind, Malformed, Record, TopicPartition
from ottla.serdes.base import SerdeOf
from ottla.sync.consume.dead_letters import ProducerSink
from ottla.sync.consume.engine import Engine
from ottla.telemetry import Hooks
from ottla.typevars import Builtin, V_co

_SLICE_S: Final = 0.05


class Consumer(Generic[V_co]):
    """A member of a group. Starts with the first record asked for, or as a context manager. One thread uses it.

    For type checkers it is generic in what `record.value` is: `Consumer[Order]`, and without a `dead_letter_topic`
    `Consumer[Order | Malformed]`. A tombstone is None in every serde: where there are some, say
    `value=Json[Order | None](Order)`.
    """

    @overload
    def __init__(
        self: Consumer[bytes],
        *topics: str,
        group: str,
        value: None = None,
        dead_letter_topic: str | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[Value],
        *topics: str,
        group: str,
        value: SerdeOf[Value],
        dead_letter_topic: str,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[Value | Malformed],
        *topics: str,
        group: str,
        value: SerdeOf[Value],
        dead_letter_topic: None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[Builtin],
        *topics: str,
        group: str,
        value: type[Builtin],
        dead_letter_topic: str,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[Builtin | Malformed],
        *topics: str,
        group: str,
        value: type[Builtin],
        dead_letter_topic: None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    def __init__(
        self,
        *topics: str,
        group: str,
        bootstrap_servers: str | Sequence[str] | None = None,
        value: Any = None,
        key: Any = None,
        dead_letter_topic: str | None = None,
        retry: RetryPolicy | None = None,
        commit: CommitPolicy | InTransactions | None = None,
        flow: FlowLimits | None = None,
        quantum: int = DEFAULT_QUANTUM_RECORDS,
        drain_s: float = 5.0,
        start_timeout_s: float | None = None,
        unready_after_s: float = DEFAULT_UNREADY_AFTER_S,
        settings: Mapping[str, Any] | None = None,
        producer_settings: Mapping[str, Any] | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self._has_dead_letters = dead_letter_topic is not None
        self._sink = ProducerSink(bootstrap_servers, settings_beside(settings, producer_settings))
        self._drain_s = drain_s
        self._decoder = decoder(group, value, key)
        effective = consumer_settings(bootstrap_servers, group_id=group, settings=settings)
        self._book = PullBook()
        self._reads = transactional_reads(self._book, commit, settings=effective, dead_letter_topic=dead_letter_topic)
        self._engine = Engine(
            group=group,
            topics=topics,
            plans=[pull_plan(topics, quantum, retry, dead_letter_topic, commit)],
            execute={},
            settings=effective,
            dead_letters=self._sink,
            flow=flow,
            commits=commit,
            drain_s=drain_s,
            start_timeout_s=start_timeout_s,
            unready_after_s=unready_after_s,
            hooks=hooks,
        )
        self._waiting: deque[tuple[OpenRun, Record[Any]]] = deque()
        self._current: Record[Any] | None = None
        self._is_started = False
        self._is_closed = False
        self._refusal: LifecycleError | None = None
        forks.refuses(self)

    # Taking records

    def __iter__(self) -> Iterator[Record[V_co]]:
        """Records without end. A record is done when the next one is asked for; leaving the loop at a record leaves it
        open (it will be delivered again), unless you `ack` it first."""
        while not self._is_closed:
            record = self._next(0.5)
            if record is not None:
                self._current = record
                yield record
                current, self._current = self._current, None
                if current is not None and self._reads is None:
                    self._settle(current, None)

    def poll(self, timeout_s: float = 1.0, *, max_records: int | None = None) -> list[Record[V_co]]:
        """Up to `max_records` records (not given: `max.poll.records`, or 500), as soon as there is one; empty after
        `timeout_s`. Each must be settled: `ack`, `retry`, `dead` or `failed`. What is not settled holds what follows it
        in its partition: `quantum` records at the most are given out before."""
        if max_records is None:
            max_records = int(self._engine.settings.get("max.poll.records", 500))
        first = self._next(timeout_s)
        if first is None:
            self._engine.tell_what_waits(self._book.open_partitions())
            return []
        records = [first]
        while len(records) < max_records:
            record = self._next(0)
            if record is None:
                break
            records.append(record)
        return records

    # Settling them

    def ack(self, *records: Record[Any]) -> None:
        """These are done."""
        refuse_to_settle(self._reads)
        for record in records:
            self._settle(record, None)

    def retry(self, record: Record[Any], *, after_s: float | None = None, reason: str = "") -> None:
        """Deliver it again, later; it counts as an attempt."""
        refuse_to_settle(self._reads)
        self._settle(record, Failure.of_outcome(Retry(after_s, reason or "the caller asked for a retry")))

    def dead(self, record: Record[Any], reason: str, *, kind: FailureKind = "failed") -> None:
        """Write it to the dead letter topic. It is done when that is acknowledged."""
        refuse_to_settle(self._reads)
        self._settle(record, Failure.of_outcome(Dead(reason, kind)))

    def failed(self, record: Record[Any], error: BaseException) -> None:
        """Handling it raised `error`: retried, and in the end dead-lettered with its stack trace."""
        refuse_to_settle(self._reads)
        self._settle(record, ExceptionTable().failure_of(error))

    def commit(self) -> None:
        """Commit what is done now, and wait for it. Not needed for safety: commits happen by policy and on close.

        Raises `RetriableError` when the coordinator refuses it, as it does while the group rebalances (what it named is
        committed with the next one), and `BrokerUnavailable` when nobody answers.
        """
        refuse_to_settle(self._reads)
        self._engine.commit_now()

    # Life

    def start(self) -> Self:
        """Connect and subscribe. Raises `BrokerUnavailable` when nobody answers."""
        if self._refusal is not None:
            raise self._refusal
        if self._is_closed:
            raise LifecycleError("the consumer is closed: make a new one")
        if not self._is_started:
            self._engine.start()
            self._is_started = True
        return self

    def close(self) -> None:
        """Commit what is done and leave the group. Records that were taken and not settled will be delivered again."""
        if self._is_closed or self._refusal is not None:  # after a fork the parent's is not ours to close
            return
        self._is_closed = True
        if not self._is_started:
            return
        self._waiting.clear()
        for finished in self._book.close_all():
            self._engine.finish(finished)
        self._engine.stop()
        self._engine.join()
        self._sink.close(self._drain_s)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # In a transaction: called by `transaction.send_offsets`, and when the transaction ends

    def join_transaction(
        self, records: Iterable[Record[Any]], owner: object
    ) -> tuple[dict[TopicPartition, int], bytes]:
        """(the offsets of these records to commit, the member that commits them), if they are still this member's."""
        if self._refusal is not None:
            raise self._refusal
        if self._reads is None:
            raise ConfigError(
                "send_offsets: found a consumer that commits by itself, wanted one made with commit=InTransactions()"
            )
        self._reads.begin(owner)
        offsets, epochs = self._reads.join(records)
        return offsets, self._engine.membership(epochs)

    def transaction_ended(self, owner: object, *, is_committed: bool) -> None:
        """What joined it is done, or everything that was taken is given out again."""
        if self._reads is None or not self._reads.belong_to(owner):
            return
        if not is_committed:
            self._waiting.clear()
            self._current = None
        for finished in self._reads.committed() if is_committed else self._reads.aborted():
            self._engine.finish(finished)

    # Questions and verbs

    def assignment(self) -> list[TopicPartition]:
        return self._engine.assignment()

    def position(self, topic_partition: TopicPartition) -> int | None:
        """The offset up to which everything is done."""
        return self._engine.position(topic_partition)

    def pause(self, *partitions: TopicPartition) -> None:
        """Take no more records of these partitions (none named: of all)."""
        self._engine.pause(*partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with these partitions (none named: with all), also with those that stopped at a failure."""
        self._engine.resume(*partitions)

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Go on from `offset`."""
        self._engine.seek(topic_partition, offset)

    def seek_to_time(self, topic_partition: TopicPartition, timestamp_ms: int) -> int:
        """Go on from the first record at or after `timestamp_ms` (epoch), or from the end. Returns the offset."""
        return self._engine.seek_to_time(topic_partition, timestamp_ms)

    def health(self) -> Health:
        return self._engine.health()

    # Parts

    def _next(self, timeout_s: float) -> Record[Any] | None:
        self.start()
        deadline_s = time.monotonic() + timeout_s
        while True:
            while self._waiting:
                opened, record = self._waiting.popleft()
                if not opened.run.is_cancelled:
                    opened.handed_out += 1
                    return record
                self._give_back_cancelled()
            self._give_back_cancelled()
            if self._engine.error is not None:
                raise self._engine.error
            # In slices, so that a revoked run is given back while the caller waits for something else.
            run = self._engine.take_run(min(_SLICE_S, max(0.0, deadline_s - time.monotonic())))
            if run is not None:
                self._open(run)
            elif time.monotonic() >= deadline_s:
                return None

    def _open(self, run: Run) -> None:
        opened = self._book.open(run)
        has_malformed, result = self._decoder.decode(run)
        if result is not None:
            self._book.close(opened)
            self._engine.finish(RunFinished(run, result))
            return
        malformed: list[tuple[Record[Any], Malformed]] = []
        for record in run.records:
            part = malformed_part(record) if has_malformed and self._has_dead_letters else None
            if part is None:
                self._waiting.append((opened, record))
            else:
                malformed.append((record, part))
        for record, part in malformed:
            finished = self._book.settle(record, Failure.of_malformed(part))
            if finished is not None:
                self._engine.finish(finished)

    def _settle(self, record: Record[Any], failure: Failure | None) -> None:
        if self._refusal is not None:
            raise self._refusal
        if record is self._current:
            self._current = None
        if failure is not None and self._waiting and self._waiting[0][0] is self._book.run_of(record):
            # Order is kept: what follows the failed record in its run waits until that is settled.
            self._waiting[0][0].withdraw(len(self._waiting))
            self._waiting.clear()
        finished = self._book.settle(record, failure)
        if finished is not None:
            self._engine.finish(finished)

    def _forked(self) -> None:
        """Runs in a child process after fork: records that were taken are the parent's, and nothing polls here."""
        if self._is_started:
            self._refusal = forks.carried_over("consumer", "threads and connections")
            self._engine = forks.Refusing(self._refusal)  # type: ignore[assignment]

    def _give_back_cancelled(self) -> None:
        for finished in self._book.close_cancelled():
            self._engine.finish(finished)
