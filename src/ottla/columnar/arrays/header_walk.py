"""The headers of one record, one after the other: for records that have many.

As in `walk.py`, and for the same reason: a header can be found only through the one before it. One step costs about
half a microsecond; headers with the same two lengths as the one before are compared a whole run at once, for a few
nanoseconds each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ottla.columnar.arrays.varints import MAX_VARINT_BYTES, BadRow, Bytes8

TRY_STRIDE_AFTER = 8
STRIDE_PAYS_FROM = 64
_TURN = 1 << 14


@dataclass(frozen=True, slots=True)
class HeaderEdges:
    """Start and end positions of the keys and values of headers, as 32-bit integers in Arrow's layout."""

    keys: NDArray[np.int32]
    values: NDArray[np.int32]
    nulls: NDArray[np.bool_]

    @classmethod
    def of(cls, count: int) -> HeaderEdges:
        return cls(np.empty(2 * count, np.int32), np.empty(2 * count, np.int32), np.zeros(count, np.bool_))

    def __len__(self) -> int:
        return len(self.nulls)


def walk_headers(
    buffer: Bytes8, position: int, limit: int, row: int, found: HeaderEdges, slot: int, count: int
) -> None:
    """Read `count` headers of a record in `buffer[position:limit]` into `found`, from `slot` on. Raises `BadRow`."""
    data = buffer.data
    last_key, last_value = -1, -1
    equal = 0
    bet_after = TRY_STRIDE_AFTER
    while count:
        keys: list[int] = []
        values: list[int] = []
        nulls: list[int] = []
        run = 0
        stop = max(0, count - _TURN)
        while count > stop:
            if position >= limit:
                raise BadRow(row, f"its bytes end with {count} headers missing")
            key = data[position]
            if key < 0x80:
                start = position + 1
            else:
                key, start = _long(data, position, limit, row)
            if key & 1 or key >> 1 > limit - start:
                raise BadRow(row, "a header's key reaches beyond its end")
            position = start + (key >> 1)
            keys += (start, position)
            if position >= limit:
                raise BadRow(row, "a header's value is missing")
            value = data[position]
            if value < 0x80:
                start = position + 1
            else:
                value, start = _long(data, position, limit, row)
            if value == 1:  # -1: null
                nulls.append(slot + len(values) // 2)
                position = start
            elif value & 1 or value >> 1 > limit - start:
                raise BadRow(row, "a header's value reaches beyond its end")
            else:
                position = start + (value >> 1)
            values += (start, position)
            count -= 1
            if key != last_key or value != last_value or key >= 0x80 or value >= 0x80:
                last_key, last_value = key, value
                equal = 0
                continue
            equal += 1
            if equal < bet_after or count < STRIDE_PAYS_FROM:
                continue
            run = _run_of_equal(buffer, position, limit, key, value, count)
            # A lost bet makes the next one later, so that mixed sizes do not pay for guessing.
            bet_after = TRY_STRIDE_AFTER if run >= STRIDE_PAYS_FROM else min(bet_after * 2, 1 << 20)
            equal = 0
            if run:
                break
        stepped = len(values) // 2
        found.keys[2 * slot : 2 * (slot + stepped)] = keys
        found.values[2 * slot : 2 * (slot + stepped)] = values
        found.nulls[nulls] = True
        slot += stepped
        if run:
            _note_run(found, slot, run, position, key >> 1, value)
            position += run * _width(key, value)
            slot += run
            count -= run


def _width(key: int, value: int) -> int:
    """Return the bytes of a header whose two lengths take one byte each."""
    return 2 + (key >> 1) + (0 if value == 1 else value >> 1)


def _run_of_equal(buffer: Bytes8, position: int, limit: int, key: int, value: int, count: int) -> int:
    """Return how many headers from `position` on have these two lengths."""
    stride = _width(key, value)
    fit = min(count, (limit - position) // stride)
    if fit <= 0:
        return 0
    window = buffer[position : position + fit * stride].reshape(fit, stride)
    same = (window[:, 0] == key) & (window[:, 1 + (key >> 1)] == value)
    first_other = int(same.argmin())
    return fit if same[first_other] else first_other


def _note_run(found: HeaderEdges, slot: int, run: int, position: int, key_bytes: int, value: int) -> None:
    starts = np.arange(run, dtype=np.int32) * np.int32(_width(key_bytes << 1, value)) + np.int32(position)
    keys = found.keys[2 * slot : 2 * (slot + run)]
    keys[0::2] = starts + 1
    keys[1::2] = starts + (1 + key_bytes)
    values = found.values[2 * slot : 2 * (slot + run)]
    values[0::2] = starts + (2 + key_bytes)
    values[1::2] = starts + (2 + key_bytes + (0 if value == 1 else value >> 1))
    found.nulls[slot : slot + run] = value == 1


def _long(data: memoryview, position: int, limit: int, row: int) -> tuple[int, int]:
    """Return a length of two bytes or more, still zigzag: (number, position behind it)."""
    number = 0
    for width in range(min(MAX_VARINT_BYTES, limit - position)):
        byte = data[position + width]
        number |= (byte & 0x7F) << 7 * width
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, position + width + 1
    raise BadRow(row, "a header's length is cut off")
