"""The workers of a member: how many are free, and the records that wait for their next attempt."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import count

from ottla.queues.core.lease import Lease, LeaseState


class Work:
    """Counts workers. A worker is busy with a lease, or reserved for what a fetch may bring, or free.

    What is leased ahead counts as if it had a worker: there are `ahead` of them more than there are.
    """

    __slots__ = ("_busy", "_max_waiting", "_number", "_reserved", "_waiting", "_waiting_count", "ahead", "concurrency")

    def __init__(self, *, concurrency: int, max_waiting: int) -> None:
        self.concurrency = concurrency
        self.ahead = 0
        """How many records may be leased beyond the workers."""
        self._max_waiting = max_waiting
        self._busy = 0
        self._reserved = 0
        self._waiting: list[tuple[int, int, Lease]] = []
        self._waiting_count = 0
        self._number = count()

    @property
    def free(self) -> int:
        """Return the number of workers that are neither busy nor reserved."""
        return self.concurrency + self.ahead - self._busy - self._reserved

    @property
    def has_idle_workers(self) -> bool:
        """Return whether a worker has nothing to do, and no fetch is to bring it something."""
        return self._busy + self._reserved < self.concurrency

    @property
    def busy(self) -> int:
        """Return the number of workers that are busy."""
        return self._busy

    @property
    def waiting(self) -> int:
        """Return the number of records that wait for their next attempt."""
        return self._waiting_count

    @property
    def is_full(self) -> bool:
        """Return whether so many records wait that no more are to be leased."""
        return self._waiting_count >= self._max_waiting

    def reserve(self, workers: int) -> None:
        """Keep these workers for what a fetch may bring."""
        self._reserved += workers

    def unreserve(self, workers: int) -> None:
        """Take in that the fetch was answered."""
        self._reserved -= workers

    def begin(self, lease: Lease) -> None:
        """Give the lease to a free worker."""
        lease.has_worker = True
        lease.is_ahead = self._busy >= self.concurrency
        self._busy += 1

    def begin_all(self, leases: Sequence[Lease]) -> tuple[Sequence[Lease], Sequence[Lease]]:
        """Give each lease to a worker. Returns those that have one now, and those whose workers are all busy."""
        idle = max(0, self.concurrency - self._busy)
        at_once, ahead = leases[:idle], leases[idle:]
        for lease in leases:
            lease.has_worker = True
        for lease in ahead:
            lease.is_ahead = True
        self._busy += len(leases)
        return at_once, ahead

    def worker_freed(self, lease: Lease) -> None:
        """Take in that the worker of the lease is free again."""
        assert lease.has_worker, f"{lease}: finished twice"
        lease.has_worker = False
        self._busy -= 1

    def wait(self, lease: Lease, due_ms: int) -> None:
        """Keep the lease until `due_ms`."""
        self._waiting_count += 1
        heapq.heappush(self._waiting, (due_ms, next(self._number), lease))

    def waits_no_more(self) -> None:
        """A lease has left the state WAITING in another way than by `next_due`."""
        self._waiting_count -= 1

    def next_due(self, now_ms: int) -> Lease | None:
        """Take the record that is due for its next attempt; None if none is."""
        while self._waiting and (self._waiting[0][0] <= now_ms or self._waiting[0][2].state is not LeaseState.WAITING):
            lease = heapq.heappop(self._waiting)[2]
            if lease.state is LeaseState.WAITING:
                self._waiting_count -= 1
                return lease
        return None

    def next_due_ms(self) -> int | None:
        """Return when the next record is due; None if there is none, or no worker for it."""
        while self._waiting and self._waiting[0][2].state is not LeaseState.WAITING:
            heapq.heappop(self._waiting)
        return self._waiting[0][0] if self._waiting and self.free > 0 else None
