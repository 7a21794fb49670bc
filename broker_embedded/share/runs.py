"""Runs of offsets that agree in everything: the state of a share partition, without an entry per record.

Runs are contiguous and in order. They are split where an operation begins or ends inside one, and joined again when
neighbours agree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

from .events import StateBatch
from .states import RecordState

_FIRST = attrgetter("first")
NO_WRITE = 0
NO_DEADLINE = -1


class Standing(NamedTuple):
    """The state of a record: what a run's records have in common."""

    state: RecordState
    delivery_count: int
    """Deliveries so far, the present one included."""
    member_id: str = ""


@lru_cache(maxsize=4_096)
def standing(state: RecordState, delivery_count: int, member_id: str = "") -> Standing:
    """Return the standing of these values, one object for all runs that have it."""
    return Standing(state, delivery_count, member_id)


class Run:
    """Offsets `first` to `last`, inclusive, of one standing."""

    __slots__ = ("before", "deadline_ms", "first", "last", "standing", "write_id")

    def __init__(
        self,
        first: int,
        last: int,
        standing: Standing,
        deadline_ms: int = NO_DEADLINE,
        write_id: int = NO_WRITE,
        before: Standing | None = None,
    ) -> None:
        self.first = first
        self.last = first if first == last else last  # one number: 32 bytes of a lease's 150
        self.standing = standing
        self.deadline_ms = deadline_ms
        """When the lease ends, or ended that comes back if a write fails."""
        self.write_id = write_id
        """The write that has to succeed before the standing counts."""
        self.before = before
        """The standing that comes back if the write fails."""

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def agrees_with(self, other: Run) -> bool:
        return (
            self.standing == other.standing
            and self.deadline_ms == other.deadline_ms
            and self.write_id == other.write_id
            and self.before == other.before
        )

    def __repr__(self) -> str:
        state, count, member_id = self.standing
        return (
            f"Run({self.first}..{self.last}, {state.name}, {count}, {member_id!r}, {self.deadline_ms}, {self.write_id})"
        )


def batch_of(run: Run) -> StateBatch:
    """Return the run as it is written."""
    return StateBatch(run.first, run.last, run.standing.state, run.standing.delivery_count)


class Runs:
    """Runs over [start, end)."""

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self._runs: list[Run] = []

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def append(self, last: int, standing: Standing) -> Run:
        """Add a run from the end offset to `last`."""
        run = Run(self.end_offset, last, standing)
        self._runs.append(run)
        self.end_offset = last + 1
        return run

    def overlapping(self, first: int, last: int) -> list[Run]:
        """Return the runs that share offsets with `first` to `last`, unsplit."""
        begin = max(0, bisect_right(self._runs, first, key=_FIRST) - 1)
        end = bisect_right(self._runs, last, key=_FIRST)
        found = self._runs[begin:end]
        return found[1:] if found and found[0].last < first else found

    def within(self, first: int, last: int) -> list[Run]:
        """Return the runs of exactly `first` to `last`: those that reach beyond are split."""
        self._split(first)
        self._split(last + 1)
        return self._runs[bisect_right(self._runs, first - 1, key=_FIRST) : bisect_right(self._runs, last, key=_FIRST)]

    def _split(self, offset: int) -> None:
        """Let a run begin at `offset`, if it lies within one."""
        position = bisect_right(self._runs, offset, key=_FIRST) - 1
        if position < 0:
            return
        run = self._runs[position]
        if run.first < offset <= run.last:
            rest = Run(offset, run.last, run.standing, run.deadline_ms, run.write_id, run.before)
            self._runs.insert(position + 1, rest)
            run.last = offset - 1

    def join(self, first: int, last: int) -> None:
        """Join runs that agree, from the neighbour before `first` to the one after `last`."""
        begin = max(0, bisect_right(self._runs, first, key=_FIRST) - 2)
        end = min(len(self._runs), bisect_right(self._runs, last, key=_FIRST) + 1)
        joined: list[Run] = []
        for run in self._runs[begin:end]:
            if joined and joined[-1].agrees_with(run):
                joined[-1].last = run.last
            else:
                joined.append(run)
        if len(joined) < end - begin:
            self._runs[begin:end] = joined

    def drop_before(self, offset: int) -> list[Run]:
        """Begin at `offset`, and return the runs that were dropped."""
        if offset >= self.end_offset:
            dropped, self._runs = self._runs, []
            self.start_offset = self.end_offset = offset
            return dropped
        self._split(offset)
        position = bisect_right(self._runs, offset - 1, key=_FIRST)
        dropped = self._runs[:position]
        del self._runs[:position]
        self.start_offset = offset
        return dropped
