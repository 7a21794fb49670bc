"""Rows of one partition as the consumer's core takes them: Arrow columns, of which a record is made only when asked.

The columns are the raw ones: key and value in bytes, offset, timestamp, its type, headers. What a handler gets is
decoded of them when its turn comes, and a dead letter has the original bytes of its row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.columnar.arrays.schema import HEADERS, TIMESTAMP, arrow_schema
from ottla.columnar.reading.few import FEW
from ottla.consumer.model.rows import Rows
from ottla.failures.expiry import EXPIRES_HEADER
from ottla.records import Record, TimestampType, TopicPartition

RAW_COLUMNS: Final = ("key", "value", "offset", "timestamp", "timestampType", "headers")
RAW_SCHEMA: Final = arrow_schema(RAW_COLUMNS)

_NOTHING: Final = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in RAW_SCHEMA], schema=RAW_SCHEMA)

_TYPES: Final = {kind.value: kind for kind in TimestampType}


class ArrowRows(Rows):
    """Raw batches of one partition, end to end, their offsets ascending. Never changed."""

    __slots__ = ("_batches", "_made", "_offsets", "_size", "partition")

    def __init__(self, partition: TopicPartition, batches: Sequence[pa.RecordBatch]) -> None:
        self.partition = partition
        self._batches = tuple(batches)
        self._size: int = sum(batch.num_rows for batch in batches)
        self._offsets: Sequence[int] | None = None
        self._made: dict[int, Record[Any]] | None = {} if self._size <= FEW else None
        """A few records are kept once made: the core looks at each several times, and it takes 20 µs."""

    @property
    def batch(self) -> pa.RecordBatch:
        """All rows as one batch; nothing is copied when they are one."""
        if len(self._batches) > 1:
            self._batches = (pa.concat_batches(self._batches),)
        return self._batches[0] if self._batches else _NOTHING

    @property
    def offsets(self) -> Sequence[int]:
        if not self._size:
            return ()
        if self._offsets is None:
            first, last = self._offset(0), self._offset(self._size - 1)
            if last - first == self._size - 1:
                self._offsets = range(first, last + 1)
            else:
                parts = [batch.column("offset").to_numpy() for batch in self._batches]
                self._offsets = tuple(np.concatenate(parts).tolist())
        return self._offsets

    @property
    def size_bytes(self) -> int:
        """What they take in memory, as far as it is theirs."""
        return int(sum(batch.nbytes for batch in self._batches))

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Record[Any]: ...

    @overload
    def __getitem__(self, index: slice) -> ArrowRows: ...

    def __getitem__(self, index: int | slice) -> Record[Any] | ArrowRows:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._size)
            if step != 1:
                raise ValueError(f"rows are cut in stretches: found step {step}, wanted 1")
            return self._part(start, max(start, stop))
        wanted = int(index)
        if wanted < 0:
            wanted += self._size
        if not 0 <= wanted < self._size:
            raise IndexError(wanted)
        made = self._made
        found = None if made is None else made.get(wanted)
        if found is None:
            batch, row = self._place(wanted)
            (found,) = _records(self.partition, batch.slice(row, 1))
            if made is not None:
                made[wanted] = found
        return found

    def __iter__(self) -> Iterator[Record[Any]]:
        for batch in self._batches:
            yield from _records(self.partition, batch)

    def joined(self, others: Sequence[ArrowRows]) -> ArrowRows:
        return ArrowRows(self.partition, [batch for rows in (self, *others) for batch in rows._batches])

    def from_offset(self, offset: int) -> ArrowRows:
        offsets = self.offsets
        if not offsets:
            return self
        first = max(0, offset - offsets[0]) if isinstance(offsets, range) else int(np.searchsorted(offsets, offset))
        return self[first:]

    def where(self, mask: np.ndarray[Any, Any]) -> ArrowRows:
        """Those rows for which the mask is true."""
        return ArrowRows(self.partition, [self.batch.filter(pa.array(mask))])

    def with_header(self, name: str, *, most: int | None = None) -> Sequence[Record[Any]]:
        """The records that have this header, or the first of them. Where no row has any headers, no row is looked
        at."""
        found = np.flatnonzero(_rows_with_header(self.batch.column("headers"), name))[:most]
        return [self[int(row)] for row in found]

    def _offset(self, index: int) -> int:
        batch, row = self._place(index)
        return int(batch.column("offset")[row].as_py())

    def _place(self, index: int) -> tuple[pa.RecordBatch, int]:
        for batch in self._batches:
            if index < batch.num_rows:
                return batch, index
            index -= batch.num_rows
        raise IndexError(index)

    def _part(self, start: int, stop: int) -> ArrowRows:
        found = []
        for batch in self._batches:
            first, last = max(start, 0), min(stop, batch.num_rows)
            if first < last:
                found.append(batch.slice(first, last - first))
            start -= batch.num_rows
            stop -= batch.num_rows
        return ArrowRows(self.partition, found)


def rows_of(records: Iterable[Record[Any]], partition: TopicPartition) -> ArrowRows:
    """Records as rows: those that were made before, of a retry or out of a retry topic."""
    if isinstance(records, ArrowRows):
        return records
    given = list(records)
    columns = [
        pa.array([record.raw_key for record in given], pa.binary()),
        pa.array([record.raw_value for record in given], pa.binary()),
        pa.array([record.offset for record in given], pa.int64()),
        pa.array([record.timestamp_ms * 1_000 for record in given], pa.int64()).cast(TIMESTAMP),
        pa.array([record.timestamp_type.value for record in given], pa.int32()),
        pa.array([[{"key": key, "value": value} for key, value in record.headers] for record in given], HEADERS),
    ]
    return ArrowRows(partition, [pa.RecordBatch.from_arrays(columns, schema=RAW_SCHEMA)])


def _records(partition: TopicPartition, batch: pa.RecordBatch) -> Iterator[Record[Any]]:
    """All records of a batch: together they cost a tenth of what they cost one by one."""
    topic, number = partition
    keys, values, offsets = (batch.column(name).to_pylist() for name in ("key", "value", "offset"))
    times_us = batch.column("timestamp").cast(pa.int64()).to_pylist()
    types, headers = (batch.column(name).to_pylist() for name in ("timestampType", "headers"))
    for key, value, offset, time_us, kind, given in zip(keys, values, offsets, times_us, types, headers, strict=True):
        shown = [(header["key"], header["value"]) for header in given] if given else None
        stamp = _TYPES.get(kind, TimestampType.CREATE_TIME)
        yield Record(topic, number, offset, time_us // 1_000, key, value, shown, key, value, stamp)  # type: ignore[arg-type]


def _rows_with_header(headers: pa.Array, name: str) -> np.ndarray[Any, Any]:
    entries = headers.flatten()
    found = np.zeros(len(headers), dtype=np.bool_)
    if len(entries):
        named = pc.equal(entries.field("key"), name).to_numpy(zero_copy_only=False)
        if named.any():
            owners = pc.list_parent_indices(headers).to_numpy()
            found[owners[np.flatnonzero(named)]] = True
    return found


__all__ = ["EXPIRES_HEADER", "RAW_COLUMNS", "RAW_SCHEMA", "ArrowRows", "rows_of"]
