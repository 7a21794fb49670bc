"""Numbers of JSON, a column at a time: what JSON calls a number, and what Arrow makes of it.

Arrow reads decimal text as C++ does, correctly rounded, and takes more for a number than JSON: `007`, `0x10`, `1.`,
`inf`. So the grammar is checked first. Digits are most of a number and need no check; each of the few other bytes is
judged by its neighbours.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.columnar.arrays.varints import Bytes8, Flags, Ints
from ottla.columnar.values.json_types import Kind

_ZERO, _MINUS, _PLUS, _POINT = (ord(character) for character in "0-+.")
_E: Final = ord("e")
_LOWER: Final = 0x20
_SURE_DIGITS: Final = 18
"""An integer with so many digits is one of 64 bits."""
_MOST_DIGITS: Final = 20
"""No other has more, its sign included."""


def read_numbers(text: pa.Array, kind: Kind) -> tuple[pa.Array, Flags]:
    """Return the numbers as a column, and which are not to be trusted. Null stays null.

    What is not to be trusted: what is no number of JSON, an `int` with a point, an exponent or more than 64 bits, and a
    `float` that is not finite, or `-0`, which is the integer zero for some decoders.
    """
    wrong = wrong_numbers(text, has_fraction=kind == "float")
    numbers = _without(text, wrong)
    numbers = pa.Array.from_buffers(pa.string(), len(numbers), numbers.buffers())
    if kind == "int":
        return _integers(numbers, wrong)
    column = numbers.cast(pa.float64())
    values = column.to_numpy(zero_copy_only=False)
    is_zero = values == 0
    if is_zero.any():
        wrong = wrong | (is_zero & np.signbit(values))
    is_infinite = np.isinf(values)
    return column, wrong | is_infinite if is_infinite.any() else wrong


def wrong_numbers(text: pa.Array, *, has_fraction: bool) -> Flags:
    """Return which of these are invalid JSON numbers (or non-integers, if a fraction or exponent is not allowed)."""
    edges, raw = _parts(text)
    if not len(raw):
        all_empty: Flags = text.is_valid().to_numpy(zero_copy_only=False)
        return all_empty
    begin, end = edges[:-1], edges[1:]
    first = begin
    wrong: Flags | None = None
    others = np.flatnonzero(~_is_digit(raw))
    if len(others):
        rows = _rows_of(others, edges)
        is_right = _fits_neighbours(raw, others, rows, edges, has_fraction=has_fraction)
        if not is_right.all():
            wrong = np.zeros(len(text), dtype=np.bool_)
            wrong[rows[~is_right]] = True
        first = begin + (raw.take(begin, mode="clip") == _MINUS)
    # What is no digit is known; left are numbers that have none in front, and zeros in front of other digits.
    size = end - first
    empty = size <= 0
    leading = raw.take(first, mode="clip") == _ZERO
    if leading.any():
        empty |= leading & (size > 1) & _is_digit(raw.take(first + 1, mode="clip"))
    wrong = empty if wrong is None else wrong | empty
    if text.null_count:
        wrong &= text.is_valid().to_numpy(zero_copy_only=False)
    return wrong


def _rows_of(positions: Ints, edges: Ints) -> Ints:
    """Return the number that each position is in."""
    one_each = len(positions) == len(edges) - 1
    if one_each and (positions >= edges[:-1]).all() and (positions < edges[1:]).all():
        return np.arange(len(positions))  # a column of decimals: their points
    return np.searchsorted(edges, positions, side="right") - 1


def _fits_neighbours(raw: Bytes8, at: Ints, rows: Ints, edges: Ints, *, has_fraction: bool) -> Flags:
    """Return whether each byte that is no digit may stand at its place."""
    byte = raw[at]
    next_byte = raw.take(at + 1, mode="clip")
    is_inside = at + 1 < edges[rows + 1]
    before_digit = is_inside & _is_digit(next_byte)
    is_first = at == edges[rows]
    is_minus: Flags = (byte == _MINUS) & is_first & before_digit
    if not has_fraction:
        return is_minus
    after_digit = ~is_first & _is_digit(raw[at - 1])
    is_point: Flags = (byte == _POINT) & after_digit & before_digit
    if is_point.all() and not (rows[1:] == rows[:-1]).any():
        return is_point  # one in each row: nothing else to look at
    is_e = (byte | _LOWER == _E) & after_digit
    is_sign_of_e = ((byte == _MINUS) | (byte == _PLUS)) & ~is_first & (raw[at - 1] | _LOWER == _E) & before_digit
    next_is_sign = is_inside & ((next_byte == _MINUS) | (next_byte == _PLUS))
    is_e &= before_digit | next_is_sign
    # What came before it in its number: a point has nothing before it but a minus, an exponent no other exponent.
    follows = np.concatenate([[False], rows[1:] == rows[:-1]])
    follows_minus = follows & np.concatenate([[False], is_minus[:-1]])
    follows_point = follows & np.concatenate([[False], is_point[:-1]])
    is_point &= ~follows | follows_minus
    is_e &= ~follows | follows_minus | follows_point
    is_right: Flags = is_minus | is_point | is_e | is_sign_of_e
    return is_right


def _integers(numbers: pa.Array, wrong: Flags) -> tuple[pa.Array, Flags]:
    try:
        return numbers.cast(pa.int64()), wrong
    except pa.ArrowInvalid:
        edges, _ = _parts(numbers)
        long = np.flatnonzero(np.diff(edges) > _SURE_DIGITS)
        is_big = [_is_of_more_than_64_bits(digits) for digits in numbers.take(pa.array(long)).to_pylist()]
        wrong = wrong.copy()
        wrong[long[is_big]] = True
        return _without(numbers, wrong).cast(pa.int64()), wrong


def _is_of_more_than_64_bits(digits: str | None) -> bool:
    return digits is not None and (len(digits) > _MOST_DIGITS or not -(2**63) <= int(digits) < 2**63)


def _without(text: pa.Array, rows: Flags) -> pa.Array:
    """Return the column with null in these rows."""
    return pc.if_else(pa.array(~rows), text, pa.scalar(None, text.type)) if rows.any() else text


def _parts(text: pa.Array) -> tuple[Ints, Bytes8]:
    """Return where each text begins and ends, and the bytes of an array that begins with its buffers."""
    _, edges, data = text.buffers()
    offsets = np.frombuffer(edges, dtype=np.int32, count=len(text) + 1).astype(np.int64)
    size = int(offsets[-1])
    return offsets, np.frombuffer(data, dtype=np.uint8, count=size) if size else np.empty(0, dtype=np.uint8)


def _is_digit(byte: Bytes8) -> Flags:
    found: Flags = byte - np.uint8(_ZERO) <= 9
    return found
