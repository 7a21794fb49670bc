"""Record headers as a column: `list<struct<key: string, value: binary>>`, read and written column-wise.

Records have different numbers of headers, so the columns are walked in rounds: the first header of all records that
have one, then the second, and so on. A round costs the same numpy calls (some 60 µs) for one record as for ten
thousand, so the few records that have many headers are finished one by one (`header_walk.py`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.columnar.arrays.binary import as_text, binary_between, binary_parts, varint_column
from ottla.columnar.arrays.header_walk import HeaderEdges, walk_headers
from ottla.columnar.arrays.schema import HEADERS
from ottla.columnar.arrays.varints import BadRow, Bytes8, Ints, read_varints, refuse_rows
from ottla.errors import InputError

FIRST_ROUNDS = 16
"""So many headers of each record are read in rounds, however few records there are: most have fewer."""
ROUNDS_PAY_FROM = 256
"""A round over fewer records costs more than the steps that it saves."""


_NO_ENTRIES = pa.nulls(0, HEADERS.value_type)


class TooManyHeaders(BadRow):
    """A record has more headers than are wanted."""


def decode_headers(buffer: Bytes8, positions: Ints, limits: Ints, *, most: int) -> pa.Array:
    """Return the headers that start (with their count) at each position. A record without headers has an empty list.

    Raises `BadRow`, and `TooManyHeaders` for a record with more than `most`.
    """
    if _have_none(buffer, positions, limits):
        return _no_headers(len(positions))
    counts, cursor = read_varints(buffer, positions, limits)
    # A header has two bytes at least, the lengths of its key and value: what is made below is bounded by what is there.
    refuse_rows((counts < 0) | (counts > (limits - cursor) >> 1), "it has fewer bytes than headers")
    if len(counts) and int(counts.max()) > most:
        row = int(counts.argmax())
        raise TooManyHeaders(row, f"{counts[row]:,} headers; {most:,} are read, set by decode.record.max.headers")
    edges = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=edges[1:])
    found = HeaderEdges.of(int(edges[-1]))
    rows = np.flatnonzero(counts)
    number = 0
    while len(rows) >= ROUNDS_PAY_FROM or (len(rows) and number < FIRST_ROUNDS):
        try:
            cursor[rows] = _one_of_each(buffer, cursor[rows], limits[rows], edges[rows] + number, found)
        except BadRow as error:
            raise BadRow(int(rows[error.row]), error.reason) from None
        number += 1
        rows = rows[counts[rows] > number]
    for row in rows.tolist():
        left = int(counts[row]) - number
        walk_headers(buffer, int(cursor[row]), int(limits[row]), row, found, int(edges[row]) + number, left)
    keys = as_text(binary_between(buffer, found.keys, np.zeros(len(found), dtype=np.bool_)))
    values = binary_between(buffer, found.values, found.nulls)
    entries = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS.value_type))
    return pa.Array.from_buffers(HEADERS, len(counts), [None, pa.py_buffer(edges.astype(np.int32))], children=[entries])


def _have_none(buffer: Bytes8, positions: Ints, limits: Ints) -> bool:
    """Return whether all records have zero headers. The first one usually decides."""
    if not len(positions) or positions[0] >= limits[0] or buffer[positions[0]]:
        return False
    return bool((positions < limits).all()) and not buffer[positions].any()


def _no_headers(count: int) -> pa.Array:
    edges = np.zeros(count + 1, dtype=np.int32)
    return pa.Array.from_buffers(HEADERS, count, [None, pa.py_buffer(edges)], children=[_NO_ENTRIES])


def _one_of_each(buffer: Bytes8, cursor: Ints, limits: Ints, slots: Ints, found: HeaderEdges) -> Ints:
    """Return one header of each record, from its cursor on; answers where they end."""
    length, start = read_varints(buffer, cursor, limits)
    refuse_rows((length < 0) | (length > limits - start), "a header's key reaches beyond its end")
    end = start + length
    found.keys[slots * 2] = start
    found.keys[slots * 2 + 1] = end
    length, start = read_varints(buffer, end, limits)
    refuse_rows((length < -1) | (length > limits - start), "a header's value reaches beyond its end")
    end = start + np.maximum(length, 0)
    found.values[slots * 2] = start
    found.values[slots * 2 + 1] = end
    found.nulls[slots] = length < 0
    return end


def encode_headers(headers: pa.Array | None, rows: int) -> tuple[pa.Array, Ints]:
    """Return each record's header count and headers as bytes, and their lengths. No headers (or null) are one zero
    byte."""
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
