"""64 bits of every row at a time: the eight bytes that a value begins with, and where the next bit of a kind is set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ottla.columnar.arrays.varints import Bytes8, Flags, Ints

Words: TypeAlias = NDArray[np.uint64]

_WIDTH: Final = 8
_EXPONENT_BITS: Final = 52
_EXPONENT_OF_ONE: Final = 1_023


class WordReader:
    """Eight bytes from any position of the data on."""

    __slots__ = ("_words",)

    def __init__(self, data: Bytes8) -> None:
        if len(data) < _WIDTH:
            data = np.append(data, np.zeros(_WIDTH, dtype=np.uint8))
        self._words: Words = np.ndarray(len(data) - _WIDTH + 1, dtype="<u8", buffer=data, strides=(1,))

    def at(self, positions: Ints) -> Words:
        """Return the bytes at these positions. Behind the last byte of the data are zeros."""
        inside = np.minimum(positions, len(self._words) - 1)
        return self._words[inside] >> ((positions - inside) * 8).astype(np.uint64)


def is_word(word: bytes, words: Words, size: Ints) -> Flags:
    """Return which values are this word, of at most eight bytes."""
    mask = np.uint64((1 << 8 * len(word)) - 1)
    found: Flags = (words & mask) == np.uint64(int.from_bytes(word, "little"))
    found &= size == len(word)
    return found


class BitReader:
    """Bits in order, the first one lowest in its byte."""

    __slots__ = ("_any_words", "_count", "_next_word", "_words")

    def __init__(self, parts: Sequence[Bytes8], count: int) -> None:
        """Take `count` bits in all. Each part but the last has eight in each of its bytes."""
        self._count = count
        size = ((count >> 6) + 2) * _WIDTH
        packed = np.concatenate([*parts, np.zeros(size - (count + 7 >> 3), dtype=np.uint8)])
        packed[count >> 3] |= 1 << (count & 7)  # there is always a next one
        self._words: Words = packed.view("<u8")
        self._any_words: Words = np.ndarray(size - _WIDTH + 1, dtype="<u8", buffer=packed, strides=(1,))
        numbers = np.where(self._words != 0, np.arange(len(self._words)), len(self._words))
        self._next_word: Ints = np.minimum.accumulate(numbers[::-1])[::-1]
        """From each word on, the first one that has a bit."""

    def next(self, positions: Ints) -> Ints:
        """Return the first bit that is set from each position on; the number of bits if none is."""
        at = np.minimum(positions, self._count)
        words = self._any_words[at >> 3] >> (at & 7).astype(np.uint64)
        found = _lowest_bit(words)
        found += at
        rows = np.flatnonzero(words == 0)
        if len(rows):
            found[rows] = self._far((at[rows] | 7) + (8 * _WIDTH - 7))
        return found

    def _far(self, at: Ints) -> Ints:
        number = at >> 6
        words = self._words[number] >> (at & 63).astype(np.uint64)
        is_further = words == 0
        number = self._next_word[number + 1]
        words = np.where(is_further, self._words.take(number, mode="clip"), words)
        return _lowest_bit(words) + np.where(is_further, number << 6, at)


def _lowest_bit(words: Words) -> Ints:
    """Return the position of the lowest bit in each word that has one."""
    powers = (words & -words).astype(np.float64)  # it alone is a power of two, and as a float its exponent
    found: Ints = (powers.view(np.int64) >> _EXPONENT_BITS) - _EXPONENT_OF_ONE
    return found
