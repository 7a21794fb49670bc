"""The bytes of many JSON rows, and where the values of those rows lie that share a layout.

Text without a backslash has no quote inside, so the next quote behind the start of a text ends it, and the next quote
behind the start of a number opens the name that follows. Where quotes are in all rows is found at once, one bit for
each byte; then each row has a cursor, and all cursors move from value to value together. What a layout puts between the
values is compared with the bytes of every row.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.columnar.arrays.binary import binary_parts, is_utf8
from ottla.columnar.arrays.varints import Bytes8, Flags, Ints
from ottla.columnar.values.json_bitmaps import BitReader, WordReader
from ottla.columnar.values.row_template import RowTemplate
from ottla.serdes.wire_format import MAGIC

_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_BLANK: Final = ord(" ")
_BLOCK: Final = 1 << 17
"""Bytes are looked at in pieces that stay in a processor's cache, of a multiple of eight."""


class ByteSpans(NamedTuple):
    """Start and end of a value in each row."""

    begin: Ints
    end: Ints
    is_text: Flags | None
    """Rows with text, including its quotes, of a nullable field."""


class JsonText:
    """Rows of JSON. `is_plain` marks the rows that this reader handles: UTF-8 without escapes."""

    __slots__ = ("_controls", "_ends", "_quotes", "_starts", "data", "is_plain", "words")

    def __init__(self, values: pa.Array, *, skip: int = 0) -> None:
        """Take rows of JSON. `skip` bytes stand in front of each row: a registry's schema id, which begins with a
        zero."""
        offsets, data, nulls = binary_parts(values)
        low, high = int(offsets[0]), int(offsets[-1])
        self.data: Bytes8 = data[low:high]
        self._starts, self._ends = offsets[:-1] - low, offsets[1:] - low
        self.is_plain: Flags = ~nulls
        if skip:
            self._pass_over(skip)
        self.words = WordReader(self.data)
        self._quotes, lowest, highest = self._look_through()
        self._controls: Ints | None = None
        if highest >= 0x80:
            self._leave_out_what_is_no_text()
        if lowest < 0x20:
            self._controls = self._count_controls()

    def row(self, number: int) -> bytes:
        return self.data[self._starts[number] : self._ends[number]].tobytes()

    def find(self, layout: RowTemplate, rows: Ints) -> tuple[Ints, list[ByteSpans]]:
        """Return which of these rows have the layout, and the position of each value in them.

        A cursor that is lost in its row may go anywhere behind it. It never comes back: the last byte of a layout has
        to be the last one of its row.
        """
        at, ends = self._starts[rows], self._ends[rows]
        fits = self._has_controls(rows, layout.controls)
        spans: list[ByteSpans] = []
        for place, literal, following in zip(layout.places, layout.literals, layout.literals[1:], strict=False):
            fits = both(fits, self._stands(literal, at))
            begin = at + len(literal)
            is_text = None
            if place.field is not None and place.field.kind == "str" and not place.is_text:
                is_text = self.data.take(begin, mode="clip") == _QUOTE
                quote = self._quotes.next(begin + is_text)
                before_quote = following.find(b'"')
                at = np.where(is_text, quote + 1, ends - len(following) if before_quote < 0 else quote - before_quote)
            elif b'"' in following:
                at = self._quotes.next(begin) - following.index(b'"')
            else:
                at = ends - len(following)
            at = np.maximum(at, begin)
            spans.append(ByteSpans(begin, at, is_text))
        fits = both(fits, self._stands(layout.literals[-1], at))
        fits = both(fits, at + len(layout.literals[-1]) == ends)
        if fits is None or fits.all():
            return rows, spans
        chosen = np.flatnonzero(fits)
        return rows[chosen], [
            ByteSpans(begin[chosen], end[chosen], None if is_text is None else is_text[chosen])
            for begin, end, is_text in spans
        ]

    def _stands(self, literal: bytes, at: Ints) -> Flags | None:
        """Return whether the literal stands at these positions; None for all of them."""
        size = len(literal)
        last = len(self.data) - size
        if last < 0:
            return np.zeros(len(at), dtype=np.bool_)
        # numpy cuts zeros off the end of bytes of fixed length. There is none in a literal.
        every = np.ndarray(last + 1, dtype=f"S{size}", buffer=self.data, strides=(1,))
        found = every[np.minimum(at, last)]
        if found.tobytes() == literal * len(at):  # a third of the time that the comparison one by one takes
            return None
        is_equal: Flags = found == literal
        return is_equal

    def _pass_over(self, skip: int) -> None:
        self.data = self.data.copy()
        has_front = self._ends - self._starts >= skip
        has_front &= self.data.take(self._starts, mode="clip") == MAGIC
        self.is_plain &= has_front
        fronts = self._starts[has_front]
        for byte in range(skip):
            self.data[fronts + byte] = _BLANK  # the number of a schema is no text, and may have quotes
        self._starts = np.where(has_front, self._starts + skip, self._ends)

    def _look_through(self) -> tuple[BitReader, int, int]:
        """Return the positions of quotes, and the lowest and the highest byte. Rows with a backslash are left out."""
        quotes, lowest, highest = [], 0xFF, 0
        for low in range(0, len(self.data), _BLOCK):
            block = self.data[low : low + _BLOCK]
            quotes.append(np.packbits(block == _QUOTE, bitorder="little"))
            is_escape = block == _BACKSLASH
            if is_escape.any():
                self.is_plain[self._rows_at(np.flatnonzero(is_escape) + low)] = False
            lowest, highest = min(lowest, int(block.min())), max(highest, int(block.max()))
        return BitReader(quotes, len(self.data)), lowest, highest

    def _leave_out_what_is_no_text(self) -> None:
        edges = pa.py_buffer(np.append(self._starts, self._ends[-1:]).astype(np.int32))
        rows = pa.Array.from_buffers(pa.binary(), len(self._starts), [None, edges, pa.py_buffer(self.data)])
        try:
            rows.cast(pa.string())
        except pa.ArrowInvalid:
            self.is_plain &= [is_utf8(row) for row in rows.to_pylist()]

    def _count_controls(self) -> Ints:
        """Return the number of control characters in each row."""
        return np.bincount(self._rows_at(np.flatnonzero(self.data < 0x20)), minlength=len(self._starts))

    def _has_controls(self, rows: Ints, wanted: int) -> Flags | None:
        """Return whether rows have exactly this many control characters: then all are in the layout, and none is in a
        value.
        """
        if self._controls is None:
            return None  # as the layout, which is that of one of the rows
        has_all: Flags = self._controls[rows] == wanted
        return has_all

    def _rows_at(self, positions: Ints) -> Ints:
        return np.searchsorted(self._ends, positions, side="right")


def both(first: Flags | None, second: Flags | None) -> Flags | None:
    """Return where both hold; None stands for everywhere."""
    if first is None or second is None:
        return second if first is None else first
    holds: Flags = first & second
    return holds
