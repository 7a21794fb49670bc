"""Which disk of a broker a replica is put on: by the same rule as between brokers, in the same plan.

What arrives goes to the disk with the lowest level; what is there moves only where a disk is too full.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from math import inf

from ottla.admin.placement.placement_state import Placement


@dataclass(slots=True)
class DiskPlan:
    """`arriving`: (partition, broker) → index of the disk it is put on. `moves`: the same → (from, to)."""

    arriving: dict[tuple[int, int], int] = field(default_factory=dict)
    moves: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)


def choose_disks(
    state: Placement, *, expired: Callable[[], bool], move_between: bool = True, brokers: Collection[int] | None = None
) -> DiskPlan:
    """Return disks for all that arrives, and with `move_between` moves between disks. `brokers`: only those, by id."""
    plan = DiskPlan()
    for b, broker in enumerate(state.model.brokers):
        if len(broker.disks) > 1 and (brokers is None or broker.id in brokers):
            _BrokerDisks(state, b, plan).spread(expired, move_between=move_between and broker.can_receive)
    return plan


class _BrokerDisks:
    def __init__(self, state: Placement, b: int, plan: DiskPlan) -> None:
        self.state, self.b, self.plan = state, b, plan
        broker = state.model.brokers[b]
        disks = broker.disks
        has_sizes = all(disk.total for disk in disks)
        self.good = [disk.can_receive for disk in disks]
        self.weight = [float(disk.total or 0) if has_sizes else 1.0 for disk in disks]
        self.room = [inf if disk.room is None else float(disk.room) for disk in disks]
        self.load = [0.0] * len(disks)
        self.on: list[set[int]] = [set() for _ in disks]
        self.arriving = []
        for p in state.on[b]:
            at = state.model.partitions[p].disks.get(broker.id)
            if at is None or b not in state.home[p]:
                self.arriving.append(p)
            else:
                self.on[at].add(p)
                self.load[at] += state.size[p]

    def spread(self, expired: Callable[[], bool], *, move_between: bool) -> None:
        size = self.state.size
        every = sum(self.load) + sum(size[p] for p in self.arriving)
        shared = sum(weight for weight, good in zip(self.weight, self.good, strict=True) if good) or 1.0
        largest = max((size[p] for p in self.state.on[self.b]), default=0)
        tolerance = 1 + self.state.goals.tolerance
        limit = [max(every * weight / shared, largest) * tolerance for weight in self.weight]
        for p in sorted(self.arriving, key=lambda p: (-size[p], p)):
            at = self._best(size[p])
            self.plan.arriving[p, self.b] = at
            self.on[at].add(p)
            self.load[at] += size[p]
        if not move_between:
            return
        stuck: set[int] = set()
        while not expired():
            over = [d for d in range(len(self.on)) if d not in stuck and self.load[d] > limit[d] and self.good[d]]
            if not over:
                return
            d = max(over, key=lambda d: (self.load[d] / limit[d], -d))
            if not self._shed(d, limit):
                stuck.add(d)

    def _best(self, size: int) -> int:
        """Return the disk with the lowest level of those that have room."""
        fitting = [d for d in range(len(self.on)) if self.good[d] and self.load[d] + size <= self.room[d]]
        usable = fitting or [d for d in range(len(self.on)) if self.good[d]] or list(range(len(self.on)))
        return min(usable, key=lambda d: ((self.load[d] + size) / (self.weight[d] or 1.0), d))

    def _shed(self, d: int, limit: list[float]) -> bool:
        size = self.state.size
        held = sorted((p for p in self.on[d] if size[p] and self.state.movable[p]), key=lambda p: (size[p], p))
        at = bisect_left(held, self.load[d] - limit[d], key=lambda p: size[p])
        for p in [*held[at : at + 8], *reversed(held[:at])]:
            targets = [
                t
                for t in range(len(self.on))
                if t != d and self.good[t] and self.load[t] + size[p] <= min(limit[t], self.room[t])
            ]
            if targets:
                self._move(p, d, min(targets, key=lambda t: ((self.load[t] + size[p]) / (self.weight[t] or 1.0), t)))
                return True
        return False

    def _move(self, p: int, d: int, t: int) -> None:
        self.on[d].discard(p)
        self.on[t].add(p)
        self.load[d] -= self.state.size[p]
        self.load[t] += self.state.size[p]
        key = (p, self.b)
        if key in self.plan.arriving:
            self.plan.arriving[key] = t
            return
        source = self.plan.moves.pop(key, (d, t))[0]
        if source != t:
            self.plan.moves[key] = (source, t)
