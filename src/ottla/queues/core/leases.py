"""The leases of one member, and when something is due of each: its renewal, the end of its lock or of its time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count
from typing import Final

from ottla.queues.core.acknowledgements import Place
from ottla.queues.core.lease import RENEWED, Lease, LeaseState

_LONGEST_AHEAD_MS: Final = 2_000
"""How long a record that was leased ahead may wait for a worker: they are slower than they were."""


class Leases:
    """A table by partition and offset. A lease that ended is not in it, though a worker may be busy with its record."""

    __slots__ = ("_leases", "_max_job_ms", "_number", "_timers")

    def __init__(self, *, max_job_ms: int) -> None:
        self._max_job_ms = max_job_ms
        self._leases: dict[tuple[Place, int], Lease] = {}
        self._timers: list[tuple[int, int, Lease]] = []
        self._number = count()

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[Lease]:
        return iter(list(self._leases.values()))

    @property
    def oldest_ms(self) -> int | None:
        """Return since when the oldest record is leased; None without any."""
        oldest = next(iter(self._leases.values()), None)
        return None if oldest is None else oldest.acquired_ms

    def at(self, place: Place, offset: int) -> Lease | None:
        """Return the lease of this record."""
        return self._leases.get((place, offset))

    def of_node(self, node: int) -> list[Lease]:
        """Return the leases that this broker gave."""
        return [lease for lease in self._leases.values() if lease.node == node]

    def are_in_work(self, node: int) -> bool:
        """Return whether something is still to be said of a lease of this broker."""
        return any(lease.node == node and lease.state in RENEWED for lease in self._leases.values())

    def add(self, lease: Lease) -> None:
        """Keep a new lease, and watch it."""
        self._leases[lease.place, lease.offset] = lease
        self.watch(lease)

    def remove(self, lease: Lease) -> None:
        """Forget a lease that ended."""
        if self._leases.get((lease.place, lease.offset)) is lease:
            del self._leases[lease.place, lease.offset]

    def watch(self, lease: Lease) -> None:
        """Look at the lease again when something may be due of it."""
        due_ms = lease.deadline_ms
        if lease.state in RENEWED and not lease.is_renewing:
            due_ms = min(due_ms, lease.renew_ms)
        if lease.state is LeaseState.RUNNING and not lease.is_timed_out:
            due_ms = min(due_ms, lease.began_ms + self._max_job_ms)
            if _may_be_released(lease):
                due_ms = min(due_ms, lease.began_ms + _LONGEST_AHEAD_MS)
        if due_ms != lease.look_ms:
            lease.look_ms = due_ms
            heapq.heappush(self._timers, (due_ms, next(self._number), lease))

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
            due_ms, _, lease = heapq.heappop(self._timers)
            if self._is_current(due_ms, lease):
                lease.look_ms = -1
                yield lease

    def next_due_ms(self) -> int | None:
        """Return when the next lease is to be looked at."""
        while self._timers and not self._is_current(self._timers[0][0], self._timers[0][2]):
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _is_current(self, due_ms: int, lease: Lease) -> bool:
        return lease.is_held and lease.look_ms == due_ms


def _may_be_released(lease: Lease) -> bool:
    """Return whether a lease may be given up before it was begun. That costs a delivery, so it happens once."""
    is_waiting = lease.state is LeaseState.RUNNING and not lease.has_begun
    return is_waiting and lease.is_ahead and lease.delivery_count <= 1 and not lease.attempts
