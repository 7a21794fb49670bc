"""Avro's binary encoding, a column at a time: one numpy call reads the same field of all rows.

Avro has no offsets: where a field starts depends on all fields before it, row by row. So each row has a cursor, all
cursors move together, and a union or an array moves some of them. A row that cannot be right is marked and its cursor
parked at its end; it never disturbs its neighbours, and nothing here raises for bad bytes.

What is marked is decided again by the row decoder (`rows.py`), which also writes the error message: this reader may
refuse what is unusual (an array of thousands, an overlong integer) without making good rows bad.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ottla.columnar.arrays.binary import binary_array, binary_parts, is_utf8, primitive_array
from ottla.columnar.arrays.varints import Bytes8, Flags, Ints
from ottla.columnar.values.avro_types import AvroNode

LONGEST_ARRAY = 256
"""An array is read in rounds, one item of every row per round; rows with more items go to the row decoder."""
FIRST_ROUNDS = 8
ROUNDS_PAY_FROM = 16
"""A round costs some 50 µs, an item of a row decoder a fraction of one: fewer rows than that go there after the first
rounds. Rounds within rounds (arrays of arrays) would cost that for each item of a single row."""

_PADDING = 16
_INT32 = (-(2**31), 2**31 - 1)


def read_avro_columns(node: AvroNode, values: pa.Array, *, skip: int = 0) -> tuple[pa.Array, Flags]:
    """Return the values as an Arrow column of `node.arrow`, and which rows are not to be trusted. Null stays null.

    `skip` bytes stand in front of each value (a registry's schema id) and are not looked at.
    """
    offsets, data, nulls = binary_parts(values)
    low, high = (int(offsets[0]), int(offsets[-1])) if len(values) else (0, 0)
    padded = np.concatenate([data[low:high], np.zeros(_PADDING, dtype=np.uint8)])
    ends = offsets[1:] - low
    hands_over = not has_big_union(node)  # the row decoder has no column for those
    cursor = _RowCursor(padded, np.minimum(offsets[:-1] - low + skip, ends), ends, hands_over=hands_over)
    column = _read(node, cursor)
    bad = (cursor.bad | (cursor.position != cursor.end)) & ~nulls
    if nulls.any():
        column = _only_where(column, ~nulls)
    return column, bad


class _RowCursor:
    """Read position of each row. A bad row's cursor stays at its end, so that no read leaves its bytes."""

    __slots__ = ("bad", "data", "end", "hands_over", "position")

    def __init__(
        self, data: Bytes8, position: Ints, end: Ints, bad: Flags | None = None, *, hands_over: bool = True
    ) -> None:
        self.data = data
        self.position = position
        self.end = end
        self.bad = np.zeros(len(position), dtype=np.bool_) if bad is None else bad
        self.hands_over = hands_over  # whether the row decoder takes rows that are costly here

    def __len__(self) -> int:
        return len(self.position)

    def move(self, after: Ints, wrong: Flags | None = None) -> Flags:
        """Go to `after`; rows that would leave their bytes, or are `wrong`, are marked. Answers which rows are fine."""
        off = (after > self.end) | (after < self.position)
        if wrong is not None:
            off |= wrong
        if off.any():
            self.bad |= off
            after = np.where(off, self.end, after)
        self.position = after
        return ~off

    def part(self, rows: Ints) -> _RowCursor:
        """Return a cursor of some of the rows; give it back with `put`."""
        return _RowCursor(self.data, self.position[rows], self.end[rows], self.bad[rows], hands_over=self.hands_over)

    def put(self, rows: Ints, part: _RowCursor) -> None:
        self.position[rows] = part.position
        self.bad[rows] = part.bad


def _read(node: AvroNode, cursor: _RowCursor) -> pa.Array:
    """Return one value of `node` in every row."""
    if node.is_nullable or node.kind == "union":
        return _read_union(node, cursor)
    return _READERS[node.kind](node, cursor)


def _read_union(node: AvroNode, cursor: _RowCursor) -> pa.Array:
    branch = _varint(cursor)
    cursor.move(cursor.position, (branch < 0) | (branch >= node.branches))
    if node.kind == "union":
        return _read_members(node, cursor, branch)
    present = (branch != node.null_at) & ~cursor.bad
    if node.kind == "null":
        return pa.nulls(len(cursor))
    inner = replace(node, null_at=None)
    if present.all():
        return _read(inner, cursor)
    return _read_where(inner, cursor, np.flatnonzero(present))


def _read_members(node: AvroNode, cursor: _RowCursor, branch: Ints) -> pa.Array:
    """Return a union of several types: a struct with one member set."""
    members: list[pa.Array] = []
    others = [i for i in range(node.branches) if i != node.null_at]
    bad = cursor.bad.copy()
    for child, number in zip(node.children, others, strict=True):
        members.append(_read_where(child, cursor, np.flatnonzero((branch == number) & ~bad)))
    column = pa.StructArray.from_arrays(members, fields=list(node.arrow))
    return column if node.null_at is None else _only_where(column, branch != node.null_at)


def _read_where(node: AvroNode, cursor: _RowCursor, rows: Ints) -> pa.Array:
    """Return a value of `node` in these rows, null in the others, whose cursors stay."""
    part = cursor.part(rows)
    found = _read(node, part)
    cursor.put(rows, part)
    indices = np.zeros(len(cursor), dtype=np.int32)
    missing = np.ones(len(cursor), dtype=np.bool_)
    indices[rows] = np.arange(len(rows), dtype=np.int32)
    missing[rows] = False
    return found.take(pa.array(indices, mask=missing))


def _read_record(node: AvroNode, cursor: _RowCursor) -> pa.Array:
    columns = [_read(child, cursor) for child in node.children]
    if not columns:
        return pa.array([{}] * len(cursor), node.arrow)
    return pa.StructArray.from_arrays(columns, fields=list(node.arrow))


def _read_null(node: AvroNode, cursor: _RowCursor) -> pa.Array:
    return pa.nulls(len(cursor))


def _read_boolean(node: AvroNode, cursor: _RowCursor) -> pa.Array:
    byte = cursor.data[cursor.position]
    cursor.move(cursor.position + 1, byte > 1)
    return pa.array(byte == 1)


def _read_int(node: AvroNode, cursor: _RowCursor) -> pa.Array:
    values = _varint(cursor)
    wrong = (values < _INT32[0]) | (values > _INT32[1])
    if wrong.any():
        cursor.move(cursor.position, wrong)
        values = np.where(wrong, 0, values)
    return primitive_array(node.arrow, values.astype(np.int32))


def _read_long(node: AvroNode, cursor: _RowCursor) -> pa.Array:
    values = _varint(cursor)
    if node.logical in ("timestamp-millis", "local-timestamp-millis"):
        limit = np.iinfo(np.int64).max // 1000
        wrong = (values > limit) | (values < -limit)
        if wrong.any():
            cursor.move(cursor.position, wrong)
            values = np.where(wrong, 0, values)
        values = values * 1000
    return primitive_array(node.arrow, values)


def _read_float(node: AvroNode, cursor: _RowCursor) -> pa.Array:
    width, kind = (4, "<f4") if node.kind == "float" else (8, "<f8")
    at = cursor.position[:, None] + np.arange(width)
    raw = cursor.data[at]
    cursor.move(cursor.position + width)
    return primitive_array(node.arrow, np.ascontiguousarray(raw).view(kind).reshape(-1))


def _read_bytes(node: AvroNode, cursor: _RowCursor) -> pa.Array:
    length = _varint(cursor)
    start = cursor.position
    return _slice(cursor, start, length)


def _read_fixed(node: AvroNode, cursor: _RowCursor) -> pa.Array:
    return _slice(cursor, cursor.position, np.full(len(cursor), node.size, dtype=np.int64))


def _read_string(node: AvroNode, cursor: _RowCursor) -> pa.Array:
    raw = _read_bytes(node, cursor)
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        wrong = np.array([value is not None and not is_utf8(value) for value in raw.to_pylist()])
        cursor.move(cursor.position, wrong)
        empty = pa.array(["" if w else None for w in wrong], pa.binary())
        return pc.if_else(pa.array(wrong), empty, raw).cast(pa.string())


def _read_enum(node: AvroNode, cursor: _RowCursor) -> pa.Array:
    index = _varint(cursor)
    wrong = (index < 0) | (index >= len(node.names))
    cursor.move(cursor.position, wrong)
    symbols = pa.array(node.names, pa.string())
    return symbols.take(primitive_array(pa.int64(), np.where(wrong, 0, index)))


def _read_array(node: AvroNode, cursor: _RowCursor) -> pa.Array:
    items, edges = _rounds(cursor, node.children, keyed=False)
    return pa.ListArray.from_arrays(primitive_array(pa.int32(), edges), items[0], type=node.arrow)


def _read_map(node: AvroNode, cursor: _RowCursor) -> pa.Array:
    key = AvroNode(kind="string", arrow=pa.string())
    items, edges = _rounds(cursor, (key, *node.children), keyed=True)
    return pa.MapArray.from_arrays(primitive_array(pa.int32(), edges), items[0], items[1], type=node.arrow)


def _rounds(
    cursor: _RowCursor, parts: tuple[AvroNode, ...], *, keyed: bool
) -> tuple[list[pa.Array], NDArray[np.int32]]:
    """Return all items of arrays or maps, and where each row's begin. A round reads one item in every row that has
    one."""
    total = len(cursor)
    left = np.zeros(total, dtype=np.int64)  # items left in the row's current block
    counts = np.zeros(total, dtype=np.int64)
    rows = np.arange(total)
    pieces: list[list[pa.Array]] = [[] for _ in parts]
    owners: list[Ints] = []
    while len(rows):
        rows = _open_blocks(cursor, rows, left)
        too_long = counts[rows] >= (
            FIRST_ROUNDS if cursor.hands_over and len(rows) < ROUNDS_PAY_FROM else LONGEST_ARRAY
        )
        if too_long.any():
            cursor.bad[rows[too_long]] = True
            cursor.position[rows[too_long]] = cursor.end[rows[too_long]]
            rows = rows[~too_long]
        if not len(rows):
            break
        part = cursor.part(rows)
        for number, node in enumerate(parts):
            pieces[number].append(_read(node, part))
        cursor.put(rows, part)
        owners.append(rows)
        counts[rows] += 1
        left[rows] -= 1
        rows = rows[~cursor.bad[rows]]
    edges = np.zeros(total + 1, dtype=np.int32)
    np.cumsum(counts, out=edges[1:])
    if not owners:
        return [pa.array([], node.arrow) for node in parts], edges
    order = pa.array(np.argsort(np.concatenate(owners), kind="stable"))
    return [pa.concat_arrays(piece).take(order) for piece in pieces], edges


def _open_blocks(cursor: _RowCursor, rows: Ints, left: Ints) -> Ints:
    """Read block headers where a row's block is used up; answer the rows that have another item."""
    empty = left[rows] == 0
    while empty.any():
        starting = rows[empty]
        part = cursor.part(starting)
        count = _varint(part)
        sized = count < 0  # a block with its size in bytes, for readers that skip: the size is read over
        if sized.any():
            some = np.flatnonzero(sized)
            inner = part.part(some)
            _varint(inner)
            part.put(some, inner)
        count = np.abs(count)  # of -2^63 that is negative still
        wrong = (count < 0) | (count > part.end - part.position)
        part.move(part.position, wrong)  # more items than bytes: only items of no bytes can be that
        cursor.put(starting, part)
        left[starting] = np.where(part.bad, 0, count)
        ended = np.zeros(len(rows), dtype=np.bool_)
        ended[empty] = (count == 0) | part.bad
        rows = rows[~ended]
        empty = left[rows] == 0
    return rows


def _slice(cursor: _RowCursor, start: Ints, length: Ints) -> pa.Array:
    fine = cursor.move(start + np.maximum(length, 0), (length < 0) | (length > cursor.end - start))
    begin = np.where(fine, start, cursor.position)
    return binary_array(cursor.data, begin, cursor.position, np.zeros(len(start), dtype=np.bool_))


def _varint(cursor: _RowCursor) -> Ints:
    """Return a zigzag integer of every row. Rows whose integer is too long are marked, and get 0."""
    data, position = cursor.data, cursor.position
    byte = data[position]
    values = (byte & 0x7F).astype(np.int64)
    after = position + 1
    more = np.flatnonzero(byte & 0x80)
    shift = 7
    while len(more) and shift < 70:
        byte = data[np.minimum(after[more], len(data) - 1)]
        values[more] |= (byte & 0x7F).astype(np.int64) << shift
        after[more] += 1
        more = more[(byte & 0x80) != 0]
        shift += 7
    wrong = None
    if len(more):
        wrong = np.zeros(len(position), dtype=np.bool_)
        wrong[more] = True
    fine = cursor.move(after, wrong)
    decoded = (values >> 1 & 0x7FFFFFFFFFFFFFFF) ^ -(values & 1)
    return decoded if fine.all() else np.where(fine, decoded, 0)


def _only_where(column: pa.Array, present: Flags) -> pa.Array:
    """Return the column with null in the other rows."""
    return pc.if_else(pa.array(present), column, pa.scalar(None, column.type))


_READERS: dict[str, Any] = {
    "null": _read_null,
    "boolean": _read_boolean,
    "int": _read_int,
    "long": _read_long,
    "float": _read_float,
    "double": _read_float,
    "bytes": _read_bytes,
    "string": _read_string,
    "fixed": _read_fixed,
    "enum": _read_enum,
    "record": _read_record,
    "array": _read_array,
    "map": _read_map,
}


def has_column_reader(node: AvroNode) -> bool:
    """Return whether every part of the schema can be read column-wise. Decimals cannot: big-endian numbers of any
    length.
    """
    return node.logical != "decimal" and all(has_column_reader(child) for child in node.children)


def has_big_union(node: AvroNode) -> bool:
    """Return whether the schema has a union of several types."""
    return node.kind == "union" or any(has_big_union(child) for child in node.children)
