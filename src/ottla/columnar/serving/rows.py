"""Rows of one partition as the consumer's core takes them: Arrow columns, of which a record is made only when asked.

The columns are the raw ones: key and value in bytes, offset, timestamp, its type, headers. What a handler gets is
decoded of them when its turn comes, and a dead letter has the original bytes of its row.

A few rows that trickle in are the other way round: records, of which a column is made only when asked. Each call of
Arrow takes as long for one of them as for a thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.columnar.arrays.binary import binary_of_few
from ottla.columnar.arrays.schema import FIELDS, TIMESTAMP, arrow_schema
from ottla.columnar.reading.small_batches import FEW
from ottla.consumer.model.memory import record_bytes
from ottla.consumer.model.rows import Rows
from ottla.records import Record, TimestampType, TopicPartition, with_header

RAW_COLUMNS: Final = ("key", "value", "offset", "timestamp", "timestampType", "headers")
RAW_SCHEMA: Final = arrow_schema(RAW_COLUMNS)

# Not `pa.array([])`, which would load pandas where that is installed, to see whether an empty list is a frame.
_NOTHING: Final = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in RAW_SCHEMA], schema=RAW_SCHEMA)

_BINARY: Final = pa.binary()
_TYPES: Final = {kind.value: kind for kind in TimestampType}

_OF_RECORDS: Final[dict[str, Callable[[Record[Any]], Any]]] = {
    "key": lambda record: record.raw_key,
    "value": lambda record: record.raw_value,
    "offset": lambda record: record.offset,
    "timestampType": lambda record: record.timestamp_type.value,
    "headers": lambda record: [{"key": key, "value": value} for key, value in record.headers],
}


class ArrowRows(Rows):
    """Raw batches of one partition, end to end, their offsets ascending. Never changed."""

    __slots__ = ("_batches", "_ends", "_few", "_offsets", "_size", "_size_bytes", "partition")

    def __init__(self, partition: TopicPartition, batches: Sequence[pa.RecordBatch]) -> None:
        self.partition = partition
        self._batches = tuple(batches)
        self._size: int = sum([batch.num_rows for batch in batches]) if batches else 0
        self._offsets: Sequence[int] | None = None
        self._size_bytes: int | None = None
        self._few: Sequence[Record[Any]] | None = None
        """A few rows as records, once they are made: the core looks at each several times."""
        self._ends: dict[int, Record[Any]] = {}
        """The first and the last row as records, likewise: each step of the session looks at them."""

    @classmethod
    def of_few(cls, records: Sequence[Record[Any]], partition: TopicPartition) -> ArrowRows:
        """Return the rows of a few records; columns are made on demand."""
        rows = cls(partition, ())
        rows._few, rows._size = records, len(records)
        return rows

    @property
    def batch(self) -> pa.RecordBatch:
        """All rows as one batch; nothing is copied when they are one."""
        if not self._batches and self._few:
            self._batches = (_batch_of(self._few),)
        elif len(self._batches) > 1:
            self._batches = (_joined(self._batches),)
        return self._batches[0] if self._batches else _NOTHING

    def column(self, name: str) -> pa.Array:
        """Return one of the raw columns. With few rows, no other column is built."""
        if not self._batches and self._few:
            return _column_of(self._few, name)
        return self.batch.column(name)

    @property
    def offsets(self) -> Sequence[int]:
        if not self._size:
            return ()
        if self._offsets is None:
            few = self._few
            first, last = (few[0].offset, few[-1].offset) if few else (self._offset(0), self._offset(self._size - 1))
            if last - first == self._size - 1:
                self._offsets = range(first, last + 1)
            elif few is not None:
                self._offsets = tuple(record.offset for record in few)
            else:
                parts = [batch.column("offset").to_numpy() for batch in self._batches]
                self._offsets = tuple(np.concatenate(parts).tolist())
        return self._offsets

    @property
    def size_bytes(self) -> int:
        """Return their own memory in bytes, in the form in which they were read."""
        if self._size_bytes is None:
            if not self._batches and self._few:
                self._size_bytes = record_bytes(self._few)
            else:
                self._size_bytes = int(sum(batch.nbytes for batch in self._batches))
        return self._size_bytes

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Record[Any]: ...

    @overload
    def __getitem__(self, index: slice) -> ArrowRows: ...

    def __getitem__(self, index: int | slice) -> Record[Any] | ArrowRows:
        few = self._few
        if few is not None and type(index) is int:  # a record that came alone is looked at ten times on its way
            return few[index]
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
        if self._few is not None or self._size <= FEW:
            return self._made()[wanted]
        found = self._ends.get(wanted)
        if found is None:
            found = _record(self.partition, *self._place(wanted))
            if wanted in (0, self._size - 1):
                self._ends[wanted] = found
        return found

    def __iter__(self) -> Iterator[Record[Any]]:
        if self._few is not None or self._size <= FEW:
            yield from self._made()
            return
        for batch in self._batches:
            yield from _records(self.partition, batch)

    def joined(self, others: Sequence[ArrowRows]) -> ArrowRows:
        parts = [rows for rows in (self, *others) if rows._size]
        if sum(rows._size for rows in parts) <= FEW and all(rows._few is not None for rows in parts):
            return ArrowRows.of_few([record for rows in parts for record in rows], self.partition)
        return ArrowRows(self.partition, [batch for rows in parts for batch in rows._as_batches()])

    def from_offset(self, offset: int) -> ArrowRows:
        offsets = self.offsets
        if not offsets:
            return self
        first = max(0, offset - offsets[0]) if isinstance(offsets, range) else int(np.searchsorted(offsets, offset))
        return self[first:]

    def where(self, mask: np.ndarray[Any, Any]) -> ArrowRows:
        """Return the rows for which the mask is true."""
        if self._few is not None:
            chosen = zip(self._few, mask.tolist(), strict=True)
            return ArrowRows.of_few([record for record, is_chosen in chosen if is_chosen], self.partition)
        return ArrowRows(self.partition, [self.batch.filter(pa.array(mask))])

    def with_header(self, name: str, *, most: int | None = None) -> Sequence[Record[Any]]:
        """Return the records that have this header, or the first of them. No row is visited if none has headers."""
        if self._few is not None:
            return with_header(self._few, name)[:most]
        headers = self.batch.column("headers")
        if not len(headers.values):
            return ()
        found = np.flatnonzero(_rows_with_header(headers, name))[:most]
        return [self[int(row)] for row in found]

    def _made(self) -> Sequence[Record[Any]]:
        """Return all rows as records, kept: for a few of them."""
        if self._few is None:
            self._few = [record for batch in self._batches for record in _records(self.partition, batch)]
        return self._few

    def _as_batches(self) -> Sequence[pa.RecordBatch]:
        return self._batches or ([self.batch] if self._size else ())

    def _offset(self, index: int) -> int:
        if self._few is not None:
            return self._few[index].offset
        batch, row = self._place(index)
        return int(batch.column("offset")[row].as_py())

    def _place(self, index: int) -> tuple[pa.RecordBatch, int]:
        for batch in self._batches:
            if index < batch.num_rows:
                return batch, index
            index -= batch.num_rows
        raise IndexError(index)

    def _part(self, start: int, stop: int) -> ArrowRows:
        if self._few is not None:
            return ArrowRows.of_few(self._few[start:stop], self.partition)
        found = []
        for batch in self._batches:
            first, last = max(start, 0), min(stop, batch.num_rows)
            if first < last:
                found.append(batch.slice(first, last - first))
            start -= batch.num_rows
            stop -= batch.num_rows
        return ArrowRows(self.partition, found)


def rows_of(records: Iterable[Record[Any]], partition: TopicPartition) -> ArrowRows:
    """Return records as rows: those that were made before, of a retry or out of a retry topic."""
    if isinstance(records, ArrowRows):
        return records
    given = list(records)
    if len(given) <= FEW:
        return ArrowRows.of_few(given, partition)
    return ArrowRows(partition, [_batch_of(given)])


def _batch_of(records: Sequence[Record[Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_column_of(records, name) for name in RAW_COLUMNS], schema=RAW_SCHEMA)


def _column_of(records: Sequence[Record[Any]], name: str) -> pa.Array:
    if name == "timestamp":
        return pa.array([record.timestamp_ms * 1_000 for record in records], pa.int64()).cast(TIMESTAMP)
    if len(records) <= FEW and FIELDS[name] == _BINARY:
        return binary_of_few(list(map(_OF_RECORDS[name], records)))
    return pa.array(list(map(_OF_RECORDS[name], records)), FIELDS[name])


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    # Not `pa.concat_batches`, which came with pyarrow 19.
    columns = [pa.concat_arrays(parts) for parts in zip(*(batch.columns for batch in batches), strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)


def _records(partition: TopicPartition, batch: pa.RecordBatch) -> Iterator[Record[Any]]:
    """Yield all records of a batch: together they cost a tenth of what they cost one by one."""
    topic, number = partition
    keys, values, offsets = (batch.column(name).to_pylist() for name in ("key", "value", "offset"))
    times_us = batch.column("timestamp").cast(pa.int64()).to_pylist()
    types, headers = (batch.column(name).to_pylist() for name in ("timestampType", "headers"))
    for key, value, offset, time_us, kind, given in zip(keys, values, offsets, times_us, types, headers, strict=True):
        shown = [(header["key"], header["value"]) for header in given] if given else None
        stamp = _TYPES.get(kind, TimestampType.CREATE_TIME)
        yield Record(topic, number, offset, time_us // 1_000, key, value, shown, key, value, stamp)  # type: ignore[arg-type]


def _record(partition: TopicPartition, batch: pa.RecordBatch, row: int) -> Record[Any]:
    """Return one row alone, in a fifth of the time that a batch of one takes."""
    key, value, offset, given = (batch.column(name)[row].as_py() for name in ("key", "value", "offset", "headers"))
    time_us, kind = batch.column("timestamp")[row].value, batch.column("timestampType")[row].as_py()
    shown = [(header["key"], header["value"]) for header in given] if given else None
    stamp = _TYPES.get(kind, TimestampType.CREATE_TIME)
    return Record(*partition, offset, time_us // 1_000, key, value, shown, key, value, stamp)  # type: ignore[arg-type]


def _rows_with_header(headers: pa.Array, name: str) -> np.ndarray[Any, Any]:
    entries = headers.flatten()
    found = np.zeros(len(headers), dtype=np.bool_)
    if len(entries):
        named = pc.equal(entries.field("key"), name).to_numpy(zero_copy_only=False)
        if named.any():
            owners = pc.list_parent_indices(headers).to_numpy()
            found[owners[np.flatnonzero(named)]] = True
    return found
