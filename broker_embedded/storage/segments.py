"""The segments of one log, in order of their base offsets."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from broker_embedded.storage.segment import LogSegment
from broker_embedded.storage.transaction_index import Remembered


class Segments:
    """A sorted list with the look-ups a log needs. The last one is the active segment."""

    __slots__ = ("_aborted", "_aborted_bases", "_bases", "_is_aborted_known", "_segments", "changes")

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._segments: list[LogSegment] = []
        self.changes = 0
        """Counts removals, so that a user of a copy (the cleaner) notices a change of the list."""
        self._aborted: list[LogSegment] = []
        self._aborted_bases: list[int] = []
        self._is_aborted_known = Remembered()

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(tuple(self._segments))

    def __getitem__(self, i: int) -> LogSegment:
        return self._segments[i]

    @property
    def active(self) -> LogSegment:
        return self._segments[-1]

    @property
    def first(self) -> LogSegment:
        return self._segments[0]

    def add(self, segment: LogSegment) -> None:
        i = bisect_left(self._bases, segment.base_offset)
        self._bases.insert(i, segment.base_offset)
        self._segments.insert(i, segment)
        segment.txn_index.emptiness = self._is_aborted_known
        self._is_aborted_known.is_true = False

    def remove(self, segment: LogSegment) -> None:
        i = self._segments.index(segment)
        del self._segments[i], self._bases[i]
        self.changes += 1
        segment.txn_index.emptiness = None
        self._is_aborted_known.is_true = False

    def floor_index(self, offset: int) -> int:
        """Return the index of the last segment whose base offset is <= `offset`; 0 without one."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def holding(self, from_offset: int, to_offset: int) -> Sequence[LogSegment]:
        """Return the segments that can hold offsets in [from, to)."""
        return self._segments[self.floor_index(from_offset) : bisect_left(self._bases, to_offset)]

    def with_aborted(self, from_offset: int) -> Sequence[LogSegment]:
        """Return the segments with an aborted transaction in their index, from the segment on that can hold
        `from_offset`.

        Every read_committed fetch calls this, and few segments have such an entry. The list is cached until a segment
        is added or removed, or an index gets its first entry or loses its last.
        """
        if not self._is_aborted_known.is_true:
            self._aborted = [segment for segment in self._segments if segment.txn_index.entries]
            self._aborted_bases = [segment.base_offset for segment in self._aborted]
            self._is_aborted_known.is_true = True
        if not self._aborted:
            return ()
        return self._aborted[bisect_left(self._aborted_bases, self._bases[self.floor_index(from_offset)]) :]

    def next_base_offset(self, segment: LogSegment) -> int | None:
        """Return the base offset of the segment behind, None for the active one."""
        i = bisect_right(self._bases, segment.base_offset)
        return self._bases[i] if i < len(self._bases) else None

    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)
