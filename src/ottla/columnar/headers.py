"""Record headers as a column: `list<struct<key: string, value: binary>>`, read and written column-wise.

Records have different numbers of headers, so the columns are walked in rounds: the first header of all records that
have one, then the second, and so on. A round costs the same numpy calls for one record as for ten thousand.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.columnar.binary import as_text, binary_array, binary_parts, varint_column
from ottla.columnar.schema import HEADERS
from ottla.columnar.varints import Bytes8, Ints, read_varints
from ottla.errors import InputError
from ottla.wire_client.errors import CorruptBatch


def decode_headers(buffer: Bytes8, positions: Ints, limits: Ints) -> pa.Array:
    """The headers that start (with their count) at each position. A record without headers has an empty list."""
    counts, cursor = read_varints(buffer, positions)
    if (counts < 0).any() or (counts > limits - positions).any():
        raise CorruptBatch("a record has a header count that cannot be right")
    edges = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=edges[1:])
    total = int(edges[-1])
    key_starts, key_ends, value_starts, value_ends = (np.empty(total, dtype=np.int64) for _ in range(4))
    nulls = np.zeros(total, dtype=np.bool_)
    rows = np.flatnonzero(counts)
    number = 0
    while len(rows):
        slots = edges[rows] + number
        key_length, starts = read_varints(buffer, cursor[rows])
        ends = starts + key_length
        key_starts[slots], key_ends[slots] = starts, ends
        value_length, starts = read_varints(buffer, ends)
        value_starts[slots] = starts
        ends = starts + np.maximum(value_length, 0)
        value_ends[slots] = ends
        nulls[slots] = value_length < 0
        if (key_length < 0).any() or (value_length < -1).any() or (ends > limits[rows]).any():
            raise CorruptBatch("a record has a header length that cannot be right")
        cursor[rows] = ends
        number += 1
        rows = rows[counts[rows] > number]
    keys = as_text(binary_array(buffer, key_starts, key_ends, np.zeros(total, dtype=np.bool_)))
    values = binary_array(buffer, value_starts, value_ends, nulls)
    entries = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS.value_type))
    return pa.Array.from_buffers(HEADERS, len(counts), [None, pa.py_buffer(edges.astype(np.int32))], children=[entries])


def encode_headers(headers: pa.Array | None, rows: int) -> tuple[pa.Array, Ints]:
    """Each record's header count and headers as bytes, and their lengths. No headers (or null) are one zero byte."""
    if headers is None or len(headers) == 0 or headers.null_count == rows:
        return _zero_bytes(rows), np.ones(rows, dtype=np.int64)
    if headers.null_count:
        headers = headers.fill_null([])
    entries = headers.flatten()
    keys = entries.field("key")
    keys = keys if keys.type == pa.binary() else keys.cast(pa.binary())
    if keys.null_count:
        raise InputError("a header has no key: Kafka's headers may have a null value, but not a null key")
    values = entries.field("value")
    edges = np.asarray(headers.offsets).astype(np.int64)
    edges -= edges[0]
    counts = np.diff(edges)
    total = int(edges[-1])

    key_lengths = np.diff(binary_parts(keys)[0])
    value_offsets, _, nulls = binary_parts(values)
    value_lengths = np.diff(value_offsets)
    value_lengths[nulls] = -1
    # One element per piece: the count of each record, then each header's key length, key, value length and value.
    lengths = pc.binary_join_element_wise(
        varint_column(key_lengths),
        keys,
        varint_column(value_lengths),
        values.fill_null(b""),
        pa.scalar(b"", pa.binary()),
    )
    pieces = pa.concat_arrays([varint_column(counts), lengths])
    order = np.empty(rows + total, dtype=np.int64)
    count_slots = edges[:-1] + np.arange(rows)
    order[count_slots] = np.arange(rows)
    is_count = np.zeros(rows + total, dtype=np.bool_)
    is_count[count_slots] = True
    order[~is_count] = rows + np.arange(total)
    ordered = pieces.take(pa.array(order))
    piece_edges, _, _ = binary_parts(ordered)
    tail_edges = piece_edges[np.append(count_slots, rows + total)]
    tails = pa.Array.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(tail_edges.astype(np.int32)), ordered.buffers()[2]]
    )
    return tails, np.diff(tail_edges)


def _zero_bytes(rows: int) -> pa.Array:
    edges = np.arange(rows + 1, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(edges), pa.py_buffer(bytes(rows))])
