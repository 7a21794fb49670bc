"""Whose turn it is among priorities: strict order, with a declared share for the lower ones.

The highest priority that is ready goes next. But one that was ready and was passed over `every - 1` times in a row goes
first; of several such, the one that is overdue longest. Within a priority the deficit round robin over its partitions
decides, as it does where there are no priorities.

The bound that follows, and that the property test states: a priority that is ready is passed over at most
`every - 1 + (n - 2)` times in a row, where n is the number of priorities and the shares `1 / every` of the lower ones
are together s < 1. The highest is passed over at most `(n - 1 - s) / (1 - s)` times: twice with (1, 4, 20). A turn that
brought no record does not count, neither does one of a worker that the priority may not take.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from ottla.consumer.scheduling.scheduler import DeficitRoundRobin

K = TypeVar("K", bound=Hashable)


class PriorityTurns(Generic[K]):
    """One ring per priority, with the interface of a single ring. 0 is the highest priority."""

    __slots__ = ("_every", "_most", "_passed", "_priority_of", "_rings")

    def __init__(self, *, quantum: int, every: Sequence[int], priority_of: Callable[[K], int]) -> None:
        self._every = tuple(every)
        self._priority_of = priority_of
        self._rings: list[DeficitRoundRobin[K]] = [DeficitRoundRobin(quantum=quantum) for _ in every]
        self._passed = [0] * len(self._every)
        """How many turns went to others in a row while the priority was ready."""
        self._most = len(self._every)
        """How many priorities, from the highest, might have had the turn that is under way."""

    def __contains__(self, key: K) -> bool:
        return key in self._ring(key)

    def __len__(self) -> int:
        return sum(map(len, self._rings))

    def set_weight(self, key: K, weight: int) -> None:
        self._ring(key).set_weight(key, weight)

    def activate(self, key: K) -> None:
        self._ring(key).activate(key)

    def deactivate(self, key: K) -> None:
        self._ring(key).deactivate(key)

    def forget(self, key: K) -> None:
        self._ring(key).forget(key)

    def next_turn(self, most: int | None = None) -> tuple[K, int] | None:
        """Return the partition whose turn it is and its allowance. `most`: only so many of the highest priorities may
        have this turn."""
        self._most = len(self._rings) if most is None else most
        chosen = self._next_priority()
        return None if chosen is None else self._rings[chosen].next_turn()

    def spent(self, key: K, *, allowance: int, cost: int) -> None:
        """End a turn. A `cost` of 0 means that it brought no records: it does not count as a turn then."""
        self._ring(key).spent(key, allowance=allowance, cost=cost)
        if not cost:
            return
        served = self._priority_of(key)
        for priority, ring in enumerate(self._rings):
            if priority == served or not len(ring):
                self._passed[priority] = 0
            elif priority < self._most:
                self._passed[priority] += 1

    def _next_priority(self) -> int | None:
        first: int | None = None
        overdue: int | None = None
        longest = -1
        for priority in range(self._most):
            if not len(self._rings[priority]):
                continue
            if first is None:
                first = priority
            late = self._passed[priority] - (self._every[priority] - 1)
            if priority and late > longest:
                overdue, longest = priority, late
        return first if overdue is None else overdue

    def _ring(self, key: K) -> DeficitRoundRobin[K]:
        return self._rings[self._priority_of(key)]
