"""Writes the rows that handlers of columns return, over the wire client: before their offsets, or in one transaction.

Both have a thread of their own (`CommitThread`), which tries again while brokers are away: handlers are not called
again for that. `ResultWriting` is at least once: a batch counts as done when its rows are acknowledged.
`RowTransactions` puts rows, dead letters and offsets in one transaction, and the coordinator checks each against the
member and its generation (KIP-447). What a handler of records sends with `out` goes the same way.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import chain, count, groupby
from random import randrange
from time import monotonic
from typing import Any, Final, Unpack

import pyarrow as pa

from ottla.app.member.commit_thread import CommitThread
from ottla.app.member.member_commits import CommitParts, Tell
from ottla.app.member.member_transactions import Join, MemberTransactions
from ottla.app.once.exactly_once_invoker import TransactionOptions
from ottla.app.once.result_settings import ResultOptions
from ottla.columnar.arrays.schema import HEADERS
from ottla.columnar.serving.returned import ColumnOutput
from ottla.columnar.writing.writer import TopicWriter
from ottla.config import Settings, dead_letter_arguments, producer_settings
from ottla.consumer.model.failed_writes import OnWritten, Write
from ottla.errors import BrokerUnavailable, DeliveryError, InputError, LifecycleError, RetriableError
from ottla.once.committing import Committing
from ottla.once.outputs import OutputRecord as RecordOutput
from ottla.once.transaction_parts import DeadLetterPart, TransactionPart
from ottla.producer.bulk import Outgoing
from ottla.records import TopicPartition
from ottla.stepping import Steps
from ottla.wire_client.client_settings import WireSettings, connection_settings
from ottla.wire_client.cluster.cluster_client import Cluster
from ottla.wire_client.errors import PartitionsRefused, WriteForbidden
from ottla.wire_client.producing.open_transactions import (
    OpenTransaction,
    Outcome,
    abort_quietly,
    add_offsets,
    begin_transaction,
    end_transaction,
)
from ottla_wire.protocol import ErrorCode

_CALL_MS: Final = 10_000
_START_S: Final = 60.0
"""The first transactional producer of a cluster waits until its coordinators are made."""

_BACKOFF_MS: Final = 20
"""A commit is answered before its markers are written, and the next transaction must wait for them: not for long."""

_BATCH_BYTES: Final = 512 * 1024
"""Unless `batch.size` was chosen: rows come by the thousand, and no batch waits for more of them."""

_OF_WRITING: Final = (
    "acks",
    "enable.idempotence",
    "compression.type",
    "max.request.size",
    "delivery.timeout.ms",
    "request.timeout.ms",
    "max.in.flight.requests.per.connection",
    "metadata.max.age.ms",
    "batch.size",
)

_ACKNOWLEDGED: Final[Future[None]] = Future()
"""A delivery that was acknowledged before its result was requested."""
_ACKNOWLEDGED.set_result(None)

AnyOutput = ColumnOutput | RecordOutput
Identity = Mapping[str, Any]
"""Identifies a member and its generation to its coordinator."""


def _event_of(name: str, tell: Tell) -> Tell:
    """Return the telemetry of a write under a name of its own."""
    return lambda _, level, fields: tell(name, level, fields)


class ResultWriting(CommitThread):
    """Rows of handlers that commit as others do: their offsets follow when the rows are acknowledged."""

    def __init__(self, options: ResultOptions, **parts: Unpack[CommitParts]) -> None:
        super().__init__(f"ottla-{options.group}-results", end=parts["end"])
        self._committing = Committing(holds=parts["holds"], tell=_event_of("results_not_written", parts["tell"]))
        arguments = dead_letter_arguments(options.producer_settings)
        settings = _write_settings(producer_settings(options.bootstrap_servers, **arguments))
        self._results = RowClient(settings, is_over=self._is_over)
        # What its own topic took compressed the dead letter topic takes as well.
        self._failed_writes = RowClient(settings, is_over=self._is_over, checks_sizes=False)


class RowSink:
    """Writes dead letters over the wire client, for a member that writes rows the same way. The owner sets `submit`."""

    def __init__(self) -> None:
        self.submit: Callable[[TransactionPart], None]

    def write(self, failed_write: Write, on_written: OnWritten, /) -> None:
        self.submit(DeadLetterPart(failed_write, on_written))


class RowClient:
    """Writes outputs without transactions; transaction calls do nothing."""

    has_name = False

    def __init__(self, settings: WireSettings, *, is_over: threading.Event, checks_sizes: bool = True) -> None:
        self._is_over = is_over
        self._cluster = Cluster(settings, sleep=self._sleep)
        self._checks_sizes = checks_sizes
        self._turns = count(randrange(1 << 16))
        self._writer: TopicWriter | None = None

    def starting(self) -> Steps[None]:
        yield from ()  # it connects with the first rows

    def closing(self) -> Steps[None]:
        yield self.close

    def begin(self) -> None:
        if self._writer is None:
            self._writer = self._new_writer(None)

    def send_all(self, groups: Sequence[Sequence[AnyOutput]]) -> None:
        """Write these, and wait until all are acknowledged."""
        writer = self._writer
        assert writer is not None
        try:
            for topic, rows in _by_topic(chain.from_iterable(groups)):
                # Rows without a key begin in another partition each time: those of small batches must not all go to
                # the first.
                writer.write(rows, topic=topic, first_partition=next(self._turns))
            writer.flush()
        except PartitionsRefused as error:
            if ErrorCode.TOPIC_AUTHORIZATION_FAILED in error.partitions.values():
                raise WriteForbidden(f"{error}: allow WRITE") from error
            raise
        except DeliveryError as error:
            if isinstance(error.__cause__, InputError):
                raise error.__cause__ from error
            raise BrokerUnavailable(str(error)) from error

    def send(self, output: AnyOutput) -> Future[None]:
        """Write one. An `InputError` is about it alone."""
        self.send_all([[output]])
        return _ACKNOWLEDGED

    def offsets(self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]) -> None:
        return

    def commit(self) -> None:
        return

    def abort(self) -> None:
        self._drop_writer()

    def renew(self) -> None:
        self.close()

    def pause(self, seconds: float) -> bool:
        return not self._is_over.wait(seconds)

    def close(self) -> None:
        self._drop_writer()
        self._cluster.close()

    def _new_writer(self, transaction: OpenTransaction | None) -> TopicWriter:
        return TopicWriter(self._cluster, transaction=transaction, checks_sizes=self._checks_sizes)

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abandon()

    def _sleep(self, seconds: float) -> None:
        """Sleep between two attempts. Does nothing while closing, when no attempt follows."""
        if self._is_over.wait(seconds):
            raise LifecycleError("the consumer is closed")


class TransactionalRowClient(RowClient):
    """Writes outputs in transactions, together with the offsets of their source rows."""

    def __init__(
        self,
        options: TransactionOptions,
        part: str,
        *,
        join: Join,
        is_over: threading.Event,
        is_for_failed_writes: bool = False,
    ) -> None:
        made = options.new_producer(part)
        settings = producer_settings(made["bootstrap_servers"], settings=made["settings"])
        # What its own topic took compressed the dead letter topic takes as well.
        super().__init__(
            _write_settings(settings).with_changes(api_timeout_ms=_CALL_MS, retry_backoff_ms=_BACKOFF_MS),
            is_over=is_over,
            checks_sizes=not is_for_failed_writes,
        )
        self.has_name = options.instance is not None
        self._group = options.group
        self._id = str(settings["transactional.id"])
        self._timeout_ms = int(settings["transaction.timeout.ms"])
        self._join = join
        self._transaction: OpenTransaction | None = None
        self._failed: OpenTransaction | None = None
        """The one before it, which was aborted."""

    def starting(self) -> Steps[None]:
        """Fence and end what another process of this name left open."""
        yield self._start

    def _start(self) -> None:
        deadline_s = monotonic() + _START_S
        while self._transaction is None:
            try:
                self._open()
            except RetriableError:
                if monotonic() >= deadline_s:
                    raise
                self._sleep(_BACKOFF_MS / 1_000)

    def begin(self) -> None:
        if self._transaction is None:
            self._open()
        elif self._writer is not None:
            self._writer.next_transaction()

    def offsets(self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]) -> None:
        assert self._transaction is not None
        member = self._join(epochs)
        offsets = {name: (offset, "") for name, offset in positions.items()}
        add_offsets(self._cluster, self._transaction, group=self._group, offsets=offsets, member=member)

    def commit(self) -> None:
        assert self._transaction is not None
        try:
            end_transaction(self._cluster, self._transaction, Outcome.COMMIT)
        except RetriableError as error:
            raise BrokerUnavailable(str(error)) from error

    def abort(self) -> None:
        """Abort. Unacknowledged records may be in the log: the next transaction has its own epoch and sequence
        numbers.
        """
        self._drop_writer()
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            self._failed = transaction
            with contextlib.suppress(LifecycleError):
                abort_quietly(self._cluster, transaction)

    def renew(self) -> None:
        self._transaction = self._failed = None
        super().renew()

    def _open(self) -> None:
        # After one of its own: who has begun with this name meanwhile is newer, and is not to be fenced.
        self._transaction = begin_transaction(self._cluster, self._id, timeout_ms=self._timeout_ms, after=self._failed)
        self._failed = None
        self._drop_writer()
        self._writer = self._new_writer(self._transaction)


class RowTransactions(MemberTransactions, CommitThread):
    """Rows, dead letters and offsets in transactions. `join` gives the member's identity."""

    _client_type = TransactionalRowClient

    def __init__(self, options: TransactionOptions, *, join: Join, **parts: Unpack[CommitParts]) -> None:
        CommitThread.__init__(self, f"ottla-{options.group}-transactions", end=parts["end"])
        MemberTransactions.__init__(self, options, join=join, is_over=self._is_over, **parts)


def _write_settings(settings: Settings) -> WireSettings:
    """Return the wire client's write settings for a producer's settings."""
    written = connection_settings(settings, _OF_WRITING)
    return written if settings.was_chosen("batch.size") else written.with_changes(batch_size=_BATCH_BYTES)


def _by_topic(outputs: Iterable[AnyOutput]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield rows as they are, and records made rows, in their order for each topic."""
    of_topic: dict[str, list[AnyOutput]] = {}
    for output in outputs:
        of_topic.setdefault(output.topic, []).append(output)
    for topic, given in of_topic.items():
        for kind, group in groupby(given, type):
            if kind is ColumnOutput:
                for each in group:
                    yield topic, each[1]
            else:
                yield topic, _rows_of([each[1] for each in group])


def _rows_of(records: Sequence[Outgoing]) -> pa.RecordBatch:
    columns: dict[str, pa.Array] = {
        "key": pa.array([record.key for record in records], pa.binary()),
        "value": pa.array([record.value for record in records], pa.binary()),
    }
    if any(record.headers for record in records):
        columns["headers"] = pa.array(
            [[{"key": name, "value": value} for name, value in record.headers or ()] for record in records], HEADERS
        )
    if any(record.partition is not None for record in records):
        columns["partition"] = pa.array([record.partition for record in records], pa.int32())
    if any(record.timestamp_ms is not None for record in records):
        columns["timestamp"] = pa.array([record.timestamp_ms for record in records], pa.int64())
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
