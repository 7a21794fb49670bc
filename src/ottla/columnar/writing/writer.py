"""`ottla.columnar.write`: an Arrow table into a topic; and `TopicWriter`, which does it batch by batch.

Columns go by Spark's names: `value` must be there; `key`, `headers`, `partition`, `timestamp` and `topic` may be. Text
is written as UTF-8. Records of one partition keep the order of their rows. What a read of another topic has beside
these (`offset`, `timestampType`) is passed over: the new topic's log gives its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from ottla.columnar.arrays.schema import HEADERS
from ottla.columnar.arrays.varints import Ints
from ottla.columnar.writing.encode import plan_batches
from ottla.columnar.writing.partitioner import partitions_for_keys
from ottla.config.token_argument import TokenFunction, with_token
from ottla.config.topic_presence import TOPICS_TIMEOUT_S
from ottla.errors import InputError, RecordTooLarge
from ottla.wire_client.client_settings import WireSettings, wire_settings
from ottla.wire_client.cluster.cluster_client import Cluster
from ottla.wire_client.cluster.topic_limits import max_message_bytes
from ottla.wire_client.producing.batch_producer import ProduceClient, Written
from ottla.wire_client.producing.open_transactions import (
    OpenTransaction,
    Outcome,
    abort_quietly,
    begin_transaction,
    end_transaction,
)
from ottla.wire_client.producing.outgoing_batch import OutgoingBatch
from ottla_wire.records import BATCH_OVERHEAD

_ROWS_AT_ONCE = 50_000
_BYTES_AT_ONCE = 64 * 1024 * 1024
"""A table is written in slices of about this size: an Arrow binary column ends at 2 GiB, and memory before that."""

_KNOWN = ("topic", "partition", "key", "value", "headers", "timestamp")
GIVEN_BY_THE_LOG = ("offset", "timestampType")
"""Columns of a read that no write decides on."""

Rows: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader | ArrowStream"
"""Writable objects: Arrow's own, and other libraries' frames and results with an Arrow stream."""


class ArrowStream(Protocol):
    """Polars and pandas frames, DuckDB results: whatever speaks the Arrow PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def write(
    topic: str,
    table: Rows,
    *,
    bootstrap_servers: str | None = None,
    settings: Mapping[str, object] | None = None,
    token: TokenFunction | None = None,
    transactional_id: str | None = None,
) -> Written:
    """Write all rows and wait until all are acknowledged; `DeliveryError` says how many were not.

    A reader (`read`) is written batch by batch as it is read. With a `transactional_id` the rows become visible all at
    once, or, after any error, not at all.
    """
    wire = wire_settings(with_token("write", settings, token), bootstrap_servers=bootstrap_servers)
    batches = batches_of(table)
    with Cluster(wire) as cluster:
        if transactional_id is None:
            return _write_all(TopicWriter(cluster, topic=topic), batches)
        transaction = begin_transaction(cluster, transactional_id)
        try:
            written = _write_all(TopicWriter(cluster, topic=topic, transaction=transaction), batches)
        except BaseException:
            abort_quietly(cluster, transaction)
            raise
        if written.rows:
            end_transaction(cluster, transaction, Outcome.COMMIT)
        return written


def batches_of(rows: Rows) -> Iterator[pa.RecordBatch]:
    """Return rows batch by batch. Raises `InputError` for what is none of Arrow's."""
    if isinstance(rows, pa.RecordBatch):
        return iter([rows])
    if isinstance(rows, pa.RecordBatchReader):
        return iter(rows)
    if not hasattr(rows, "__arrow_c_stream__"):
        raise InputError(
            f"found {type(rows).__name__}, wanted an Arrow table, record batch or stream of record batches"
        )
    return iter(pa.RecordBatchReader.from_stream(rows))


def _write_all(writer: TopicWriter, batches: Iterable[pa.RecordBatch]) -> Written:
    for batch in batches:
        writer.write(batch)
    return writer.flush()


class TopicWriter:
    """Writes record batches of rows. `topic` is where rows go that have no `topic` column of their own."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        topic: str | None = None,
        now_ms: Any = None,
        first_partition: int = 0,
        transaction: OpenTransaction | None = None,
        checks_sizes: bool = True,
    ) -> None:
        """Create a writer. `checks_sizes=False` leaves size checks to the broker: what was compressed in another topic
        may fit."""
        self._cluster = cluster
        self._checks_sizes = checks_sizes
        self._topic = topic
        self._client = ProduceClient(cluster, transaction)
        self._limits: dict[str, tuple[int, str]] = {}
        self._now_ms = now_ms or (lambda: time.time_ns() // 1_000_000)
        self._first_partition = first_partition

    def __enter__(self) -> TopicWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._client.abandon()

    @property
    def settings(self) -> WireSettings:
        """The settings that the writer connects with."""
        return self._cluster.settings

    def write(self, rows: pa.RecordBatch, *, topic: str | None = None, first_partition: int | None = None) -> None:
        """Send these rows, to `topic` if one is named; answers may still be due when this returns.

        `first_partition` is where rows without a key begin, if not where this writer's first ones did.
        """
        check_columns(rows.schema)
        if first_partition is not None:
            self._first_partition = first_partition
        for start, count in _slices(rows):
            part = rows.slice(start, count)
            for name, of_topic in self._by_topic(part) if topic is None else [(topic, part)]:
                self._write_slice(name, of_topic)

    def flush(self) -> Written:
        """Wait until everything written so far is acknowledged."""
        return self._client.flush()

    def abandon(self) -> None:
        """Forget what is not acknowledged yet."""
        self._client.abandon()

    def next_transaction(self) -> None:
        """Begin the producer's next transaction, after a commit."""
        self._client.next_transaction()

    def _by_topic(self, rows: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
        if "topic" not in rows.schema.names:
            if self._topic is None:
                raise InputError("no topic: name one, or give the rows a column topic")
            return [(self._topic, rows)]
        if self._topic is not None:  # the option wins over the column, as in Spark's own sink
            return [(self._topic, rows)]
        names = rows.column("topic").cast(pa.string())
        if names.null_count:
            raise InputError(f"{names.null_count} rows have no topic, and no default topic was named")
        encoded = names.dictionary_encode()
        found = encoded.dictionary.to_pylist()
        if len(found) == 1:
            return [(found[0], rows)]
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        return [(name, rows.take(pa.array(np.flatnonzero(codes == code)))) for code, name in enumerate(found)]

    def _write_slice(self, topic: str, rows: pa.RecordBatch) -> None:
        partition_count = len(self._cluster.topic(topic, missing_for_s=TOPICS_TIMEOUT_S).leaders)
        key, value = _bytes_column(rows, "key"), _bytes_column(rows, "value")
        partitions = self._partitions(rows, key, partition_count)
        headers = _headers_column(rows)
        timestamps = self._timestamps(rows)
        order = np.argsort(partitions, kind="stable")
        if not (order[:-1] <= order[1:]).all():
            indices = pa.array(order)
            key, value, headers = (None if c is None else c.take(indices) for c in (key, value, headers))
            timestamps = timestamps[order]
        limit, setting = self._limit(topic) if self._checks_sizes else (self.settings.batch_size, "")
        batches = plan_batches(
            key=key,
            value=value,
            headers=headers,
            timestamps_ms=timestamps,
            partitions=partitions[order],
            max_batch_bytes=min(self.settings.batch_size, limit),
        )
        if self._checks_sizes:
            _refuse_too_large(topic, batches, limit, setting)
        self._client.send(topic, batches)

    def _partitions(self, rows: pa.RecordBatch, key: pa.Array | None, partition_count: int) -> np.ndarray[Any, Any]:
        by_key = partitions_for_keys(
            key, rows=rows.num_rows, partition_count=partition_count, first=self._first_partition
        )
        if "partition" not in rows.schema.names:
            return by_key
        given = rows.column("partition").cast(pa.int32())
        chosen = np.where(
            given.is_valid().to_numpy(zero_copy_only=False), given.fill_null(0).to_numpy(zero_copy_only=False), by_key
        ).astype(np.int32)
        wrong = chosen[(chosen < 0) | (chosen >= partition_count)]
        if len(wrong):
            raise InputError(
                f"column partition: found {int(wrong[0])}, but the topic has partitions 0 to {partition_count - 1}"
            )
        return chosen

    def _timestamps(self, rows: pa.RecordBatch) -> Ints:
        now = self._now_ms()
        if "timestamp" not in rows.schema.names:
            return np.full(rows.num_rows, now, dtype=np.int64)
        column = rows.column("timestamp")
        millis = (
            column.cast(pa.timestamp("ms", tz=getattr(column.type, "tz", None)), safe=False)
            if pa.types.is_timestamp(column.type)
            else column
        )
        return np.asarray(millis.cast(pa.int64()).fill_null(now).to_numpy(zero_copy_only=False))

    def _limit(self, topic: str) -> tuple[int, str]:
        if topic not in self._limits:
            self._limits[topic] = max_message_bytes(self._cluster, topic)
        return self._limits[topic]


def check_columns(schema: pa.Schema) -> None:
    """Raise `InputError` for columns that no topic has, or of a type that cannot be written."""
    unknown = sorted(set(schema.names) - set(_KNOWN) - set(GIVEN_BY_THE_LOG))
    if unknown:
        raise InputError(f"no such column in a topic: {', '.join(unknown)}; there are {', '.join(_KNOWN)}")
    if "value" not in schema.names:
        raise InputError(f"the column value is missing; found {', '.join(schema.names) or 'no columns'}")


def _refuse_too_large(topic: str, batches: list[OutgoingBatch], limit: int, setting: str) -> None:
    """Refuse a record over the limit. It is alone in its batch, so the batch's size is the record's encoded size."""
    for batch in batches:
        size = len(batch.payload) + BATCH_OVERHEAD
        if size > limit:
            raise RecordTooLarge(topic=topic, size_bytes=size, limit_bytes=limit, setting=setting)


def _bytes_column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    if name not in rows.schema.names:
        return None
    column = rows.column(name)
    kind = column.type
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.binary())
    if kind == pa.binary():
        return column
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return column.cast(pa.binary())
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    raise InputError(f"column {name}: found {kind}, wanted bytes or text; encode it first")


def _headers_column(rows: pa.RecordBatch) -> pa.Array | None:
    if "headers" not in rows.schema.names:
        return None
    column = rows.column("headers")
    if pa.types.is_null(column.type):
        return None
    try:
        return column if column.type == HEADERS else column.cast(HEADERS)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError) as error:
        raise InputError(f"column headers: found {column.type}, wanted {HEADERS}: {error}") from None


def _slices(rows: pa.RecordBatch) -> list[tuple[int, int]]:
    """Return (start, count) of slices of bounded rows and bytes."""
    try:
        size = max(rows.nbytes, 1)
    except pa.ArrowTypeError:  # of views of text or bytes, in older versions of pyarrow
        size = max(rows.get_total_buffer_size(), 1)
    pieces = max(-(-rows.num_rows // _ROWS_AT_ONCE), -(-size // _BYTES_AT_ONCE), 1)
    step = max(1, -(-rows.num_rows // pieces))
    return [(start, min(step, rows.num_rows - start)) for start in range(0, rows.num_rows, step)]
