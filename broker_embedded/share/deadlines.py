"""When the locks of leases end, in the order in which they do."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable

_LEAST_DROPPED = 64


class Deadlines:
    """Ranges of offsets by deadline. Locks that are given later end later, so that a range is mostly added at the end.

    Three columns of numbers: 24 bytes a range, where a heap of tuples takes 120.
    """

    __slots__ = ("_at_ms", "_begin", "_first", "_last")

    def __init__(self, ranges: Iterable[tuple[int, int, int]] = ()) -> None:
        self._at_ms, self._first, self._last = array("q"), array("q"), array("q")
        self._begin = 0
        """Everything before this index was taken."""
        for deadline_ms, first, last in sorted(ranges):
            self.add(deadline_ms, first, last)

    def __len__(self) -> int:
        return len(self._at_ms) - self._begin

    @property
    def next_ms(self) -> int | None:
        """Return the earliest deadline; None if there is none."""
        return self._at_ms[self._begin] if self else None

    def add(self, deadline_ms: int, first: int, last: int) -> None:
        """Add the range `first` to `last`, inclusive."""
        if not self or deadline_ms >= self._at_ms[-1]:
            self._at_ms.append(deadline_ms)
            self._first.append(first)
            self._last.append(last)
            return
        at = bisect_right(self._at_ms, deadline_ms, lo=self._begin)
        self._at_ms.insert(at, deadline_ms)
        self._first.insert(at, first)
        self._last.insert(at, last)

    def take(self) -> tuple[int, int, int]:
        """Take the earliest deadline and its range."""
        at = self._begin
        taken = self._at_ms[at], self._first[at], self._last[at]
        self._begin += 1
        if self._begin > _LEAST_DROPPED and 2 * self._begin > len(self._at_ms):
            for column in (self._at_ms, self._first, self._last):
                del column[: self._begin]
            self._begin = 0
        return taken
