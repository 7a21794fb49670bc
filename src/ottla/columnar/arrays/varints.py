"""Kafka's zigzag varints, a column at a time.

Responsible for reading a varint at each of many positions of one buffer, and for writing a column of integers as
varints; never for one value at a time. A record has five of them (length, timestamp delta, offset delta, key length,
value length) and one for its header count, so their cost is most of the cost of decoding.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bytes8: TypeAlias = NDArray[np.uint8]
Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

MAX_VARINT_BYTES = 10
"""A 64-bit value takes at most ten bytes of seven bits."""

_CUT_OFF = "a number reaches past the end of its record"


class BadRow(Exception):
    """Bytes of one row that cannot be right. The row is a number only: its place in a topic is known further up."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(row, reason)
        self.row = row
        self.reason = reason


def refuse_rows(wrong: NDArray[np.bool_], reason: str) -> None:
    """Raise `BadRow` for the first row that is wrong, if any is."""
    if wrong.any():
        raise BadRow(int(wrong.argmax()), reason)


def read_varints(buffer: Bytes8, positions: Ints, limits: Ints) -> tuple[Ints, Ints]:
    """Return the signed value at each position, and the position behind each, which is at most the row's limit.

    Positions are not negative and limits lie in the buffer: that is the caller's to know. Raises `BadRow` for a varint
    that does not end before its limit, or not at all.
    """
    if not len(positions):
        return positions.astype(np.int64), positions.astype(np.int64)
    refuse_rows(positions >= limits, _CUT_OFF)
    first = buffer[positions]
    after = positions + 1
    if int(first.max()) < 0x80:
        return _unzigzag(first.view(np.int8)).astype(np.int64), after
    goes_on = first >= 0x80
    refuse_rows(goes_on & (after >= limits), _CUT_OFF)
    # The second byte of all rows, wanted or not, costs less than to pick those that have one. Clipped: a row that ends
    # with its first byte may be the last of the buffer.
    second = buffer.take(after, mode="clip")
    short = (first & 0x7F).astype(np.int16) | (goes_on * (second & 0x7F)).astype(np.int16) << 7
    after += goes_on
    more = np.flatnonzero(goes_on & (second >= 0x80))
    if not len(more):
        return _unzigzag(short).astype(np.int64), after
    values = short.astype(np.int64)
    _read_on(buffer, values, after, limits, more)
    return (values >> 1 & 0x7FFFFFFFFFFFFFFF) ^ -(values & 1), after


def _read_on(buffer: Bytes8, values: Ints, after: Ints, limits: Ints, more: Ints) -> None:
    """Read on from the third byte, for the rows `more`, into `values` and `after`."""
    shift = 14
    while len(more):
        if shift >= 7 * MAX_VARINT_BYTES:
            raise BadRow(int(more[0]), f"a number is longer than {MAX_VARINT_BYTES} bytes")
        if len(more) == len(values):  # every row goes on: no mask needed
            refuse_rows(after >= limits, _CUT_OFF)
            following = buffer[after]
            values |= (following & 0x7F).astype(np.int64) << shift
            after += 1
            more = np.flatnonzero(following & 0x80)
        else:
            at = after[more]
            cut_off = at >= limits[more]
            if cut_off.any():
                raise BadRow(int(more[cut_off.argmax()]), _CUT_OFF)
            following = buffer[at]
            values[more] |= (following & 0x7F).astype(np.int64) << shift
            after[more] += 1
            more = more[(following & 0x80) != 0]
        shift += 7


def varint_widths(values: Ints) -> Ints:
    """Return the bytes of each value as a zigzag varint."""
    zigzag = _zigzag(values)
    widths = np.ones(len(values), dtype=np.int64)
    limit = 7
    while limit < 64:
        wider = zigzag >= np.uint64(1 << limit)
        if not wider.any():
            break
        widths += wider
        limit += 7
    return widths


def write_varints(out: Bytes8, positions: Ints, values: Ints) -> Ints:
    """Write each value at its position in `out`; answer the position behind each."""
    zigzag = _zigzag(values)
    if not len(zigzag):
        return positions.copy()
    after = positions + 1
    if int(zigzag.max()) < 0x80:
        out[positions] = zigzag.astype(np.uint8)
        return after
    more = zigzag >= np.uint64(0x80)
    out[positions] = ((zigzag & np.uint64(0x7F)) | (more.astype(np.uint64) << np.uint64(7))).astype(np.uint8)
    rows = np.flatnonzero(more)
    rest = zigzag[rows] >> np.uint64(7)
    while len(rows):
        more = rest >= np.uint64(0x80)
        out[after[rows]] = ((rest & np.uint64(0x7F)) | (more.astype(np.uint64) << np.uint64(7))).astype(np.uint8)
        after[rows] += 1
        rows = rows[more]
        rest = rest[more] >> np.uint64(7)
    return after


def _zigzag(values: Ints) -> NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def _unzigzag(short: NDArray[np.int8] | NDArray[np.int16]) -> NDArray[Any]:
    """Decode non-negative numbers in the narrowest type that fits: an eighth or a quarter of the work."""
    return (short >> 1) ^ -(short & 1)
