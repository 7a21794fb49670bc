"""The leases of one member, and when something is due of each: its renewal, the end of its lock or of its time."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Final

from ottla.queues.core.acknowledgements import Place
from ottla.queues.core.lease import RENEWED, Lease, LeaseState

_MANY_TIMED: Final = 1_000

_NONE: Final[Mapping[int, Lease]] = {}

_LONGEST_AHEAD_MS: Final = 2_000
"""How long a record that was leased ahead may wait for a worker: they are slower than they were."""


class Leases:
    """A table by partition and offset. A lease that ended is not in it, though a worker may be busy with its record."""

    __slots__ = ("_count", "_max_job_ms", "_number", "_places", "_timed", "_timers")

    def __init__(self, *, max_job_ms: int) -> None:
        self._max_job_ms = max_job_ms
        self._places: dict[Place, dict[int, Lease]] = {}
        self._count = 0
        self._timers: list[tuple[int, int, list[Lease]]] = []
        """Leases that came together are due together, so they share an entry."""
        self._timed = 0
        """How many leases the entries have, also such as have ended or are due at another time by now."""
        self._number = count()

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Lease]:
        return iter([lease for leases in self._places.values() for lease in leases.values()])

    @property
    def oldest_ms(self) -> int | None:
        """Return since when the oldest record is leased; None without any."""
        oldest = (next(iter(leases.values())).acquired_ms for leases in self._places.values() if leases)
        return min(oldest, default=None)

    def of_place(self, place: Place) -> Mapping[int, Lease]:
        """Return the leases of this partition's records by offset."""
        return self._places.get(place, _NONE)

    def of_node(self, node: int) -> list[Lease]:
        """Return the leases that this broker gave."""
        return [lease for lease in self if lease.node == node]

    def are_in_work(self, node: int) -> bool:
        """Return whether something is still to be said of a lease of this broker."""
        return any(lease.node == node and lease.state in RENEWED for lease in self)

    def add(self, place: Place, leases: Sequence[Lease]) -> None:
        """Keep new leases of one answer, none of which is kept already, and watch them. All are in the same state, with
        a worker each or ahead of it."""
        if leases:
            self._places.setdefault(place, {}).update((lease.offset, lease) for lease in leases)
            self._count += len(leases)
            self._watch(self._due_ms(leases[0]), list(leases))

    def remove(self, lease: Lease) -> None:
        """Forget a lease that ended."""
        self.remove_all(lease.place, [lease])

    def remove_all(self, place: Place, ended: Iterable[Lease]) -> None:
        """Forget leases of one partition that ended."""
        leases = self._places.get(place)
        if leases is None:
            return
        before = len(leases)
        for lease in ended:
            if leases.get(lease.offset) is lease:
                del leases[lease.offset]
        self._count -= before - len(leases)

    def watch(self, lease: Lease) -> None:
        """Look at the lease again when something may be due of it."""
        due_ms = self._due_ms(lease)
        if due_ms != lease.look_ms:
            self._watch(due_ms, [lease])

    def _watch(self, due_ms: int, leases: list[Lease]) -> None:
        for lease in leases:
            lease.look_ms = due_ms
        heapq.heappush(self._timers, (due_ms, next(self._number), leases))
        self._timed += len(leases)
        if self._timed > 4 * self._count + _MANY_TIMED:
            self._forget_ended()

    def _forget_ended(self) -> None:
        """Drop what would be kept, with its record, until a job that takes long is due."""
        current = [
            (due_ms, number, [lease for lease in leases if _is_current(due_ms, lease)])
            for due_ms, number, leases in self._timers
        ]
        self._timers = [entry for entry in current if entry[2]]
        heapq.heapify(self._timers)
        self._timed = sum(len(leases) for _, _, leases in self._timers)

    def _due_ms(self, lease: Lease) -> int:
        due_ms = lease.deadline_ms
        if lease.state in RENEWED and not lease.is_renewing:
            due_ms = min(due_ms, lease.renew_ms)
        if lease.state is LeaseState.RUNNING and not lease.is_timed_out:
            due_ms = min(due_ms, lease.began_ms + self._max_job_ms)
            if _may_be_released(lease):
                due_ms = min(due_ms, lease.began_ms + _LONGEST_AHEAD_MS)
        return due_ms

    def lasts_too_long(self, lease: Lease, now_ms: int) -> bool:
        """Return whether the attempt has lasted as long as it may."""
        is_running = lease.state is LeaseState.RUNNING and not lease.is_timed_out
        return is_running and now_ms - lease.began_ms >= self._max_job_ms

    def waits_too_long(self, lease: Lease, now_ms: int) -> bool:
        """Return whether a record that was leased ahead is to be released, for a member with a free worker."""
        return _may_be_released(lease) and now_ms - lease.began_ms >= _LONGEST_AHEAD_MS

    def due(self, now_ms: int) -> Iterator[Lease]:
        """Yield the leases to look at now; each is to be watched again."""
        while self._timers and self._timers[0][0] <= now_ms:
            due_ms, _, leases = heapq.heappop(self._timers)
            self._timed -= len(leases)
            for lease in leases:
                if _is_current(due_ms, lease):
                    lease.look_ms = -1
                    yield lease

    def next_due_ms(self) -> int | None:
        """Return when the next lease is to be looked at."""
        while self._timers:
            due_ms, _, leases = self._timers[0]
            while leases:
                if _is_current(due_ms, leases[-1]):
                    return due_ms
                leases.pop()
                self._timed -= 1
            heapq.heappop(self._timers)
        return None


def _is_current(due_ms: int, lease: Lease) -> bool:
    return lease.look_ms == due_ms and lease.is_held


def _may_be_released(lease: Lease) -> bool:
    """Return whether a lease may be given up before it was begun. That costs a delivery, so it happens once."""
    is_waiting = lease.state is LeaseState.RUNNING and not lease.has_begun
    return is_waiting and lease.is_ahead and lease.delivery_count <= 1 and not lease.attempts
