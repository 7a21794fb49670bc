"""Arrow columns to record batches (format 2), without a Python object per record.

`plan_batches` lays all records of a table out as bytes in a few numpy and pyarrow calls and cuts them into batches by
partition and size; `finish_batch` compresses one batch and puts its header and CRC in front, just before it is sent,
when its producer id and sequence are known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.columnar.arrays.binary import binary_parts, varint_column
from ottla.columnar.arrays.headers import encode_headers
from ottla.columnar.arrays.varints import Ints, varint_widths
from ottla.wire_client.producing.outgoing_batch import OutgoingBatch
from ottla_wire.records import BATCH_OVERHEAD

RECORD_OVERHEAD = 1 + 5 + 10 + 5 + 5 + 5 + 5
"""The most a record takes besides key, value and headers: attributes and six varints. Kafka's own bound is 21."""


def record_sizes(key: pa.Array | None, value: pa.Array | None, header_sizes: Ints | None, rows: int) -> Ints:
    """Return an upper bound of each record's encoded bytes."""
    sizes = np.full(rows, RECORD_OVERHEAD, dtype=np.int64)
    for column in (key, value):
        if column is not None:
            sizes += np.diff(binary_parts(column)[0])
    if header_sizes is not None:
        sizes += header_sizes
    return sizes


def plan_batches(
    *,
    key: pa.Array | None,
    value: pa.Array | None,
    headers: pa.Array | None,
    timestamps_ms: Ints,
    partitions: np.ndarray[Any, np.dtype[np.int32]],
    max_batch_bytes: int,
) -> list[OutgoingBatch]:
    """Return batches of at most `max_batch_bytes` (one record at least), rows of a partition in order.

    `partitions` must be sorted: rows of one partition stand together. Null keys and values stay null on the wire.
    """
    rows = len(partitions)
    if not rows:
        return []
    tails, tail_lengths = encode_headers(headers, rows)
    sizes = record_sizes(key, value, tail_lengths, rows)
    starts = _cut(partitions, sizes, max_batch_bytes - BATCH_OVERHEAD)
    lengths = np.diff(np.append(starts, rows))
    delta = np.arange(rows, dtype=np.int64) - np.repeat(starts, lengths)
    base_timestamps = timestamps_ms[starts]
    timestamp_delta = timestamps_ms - np.repeat(base_timestamps, lengths)

    key_lengths = _lengths(key, rows)
    value_lengths = _lengths(value, rows)
    value_widths = varint_widths(value_lengths)
    front_widths = 1 + varint_widths(timestamp_delta) + varint_widths(delta) + varint_widths(key_lengths)
    record_lengths = (
        front_widths + np.maximum(key_lengths, 0) + value_widths + np.maximum(value_lengths, 0) + tail_lengths
    )
    fronts = varint_column(record_lengths, None, timestamp_delta, delta, key_lengths)
    middles = varint_column(value_lengths)
    columns = [fronts, key, middles, value, tails]
    joined = pc.binary_join_element_wise(
        *[column for column in columns if column is not None],
        pa.scalar(b"", pa.binary()),
        null_handling="replace",
        null_replacement=b"",
    )
    edges, data, _ = binary_parts(joined)
    payloads = data.data
    max_timestamps = np.maximum.reduceat(timestamps_ms, starts)
    return [
        OutgoingBatch(
            partition=int(partitions[first]),
            first_row=int(first),
            row_count=int(count),
            payload=payloads[int(edges[first]) : int(edges[first + count])],
            base_timestamp_ms=int(base),
            max_timestamp_ms=int(latest),
        )
        for first, count, base, latest in zip(starts, lengths, base_timestamps, max_timestamps, strict=True)
    ]


def _cut(partitions: np.ndarray[Any, np.dtype[np.int32]], sizes: Ints, budget: int) -> Ints:
    """Return the first row of each batch: at each change of partition, and where the budget is used up."""
    changes = np.flatnonzero(np.diff(partitions)) + 1
    ends = np.append(changes, len(partitions))
    total = np.cumsum(sizes)
    starts: list[int] = []
    first = 0
    for end in ends.tolist():
        while first < end:
            starts.append(first)
            used = int(total[first - 1]) if first else 0
            fits = int(np.searchsorted(total, used + budget, side="right"))
            first = min(max(fits, first + 1), end)
    return np.array(starts, dtype=np.int64)


def _lengths(column: pa.Array | None, rows: int) -> Ints:
    """Return the length of each row, -1 for null."""
    if column is None:
        return np.full(rows, -1, dtype=np.int64)
    offsets, _, nulls = binary_parts(column)
    lengths = np.diff(offsets)
    if column.null_count:
        lengths[nulls] = -1
    return lengths
