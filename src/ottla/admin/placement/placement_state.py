"""A placement while it is searched: brokers and partitions by index, loads kept up to date with every move.

Nothing here decides; it says what is allowed and what it would cost. Bytes are whole partitions' sizes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from ottla.admin.placement.cluster_model import Model
from ottla.admin.placement.goals import Floor, by_rate, mean_of, racks_wanted, reachable, receivers_of
from ottla.admin.placement.modelling import MAX_FILL
from ottla.admin.placement.move_schedule import MovePace

RATE_TOLERANCE = 1.15
"""How far above its part a broker's write rate may be because of a plan, unless it is so today."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goals:
    """Goals of a plan. `tolerance`: how far the fullest broker may exceed the best reachable level. `max_fill` is the
    fill limit behind the model's rooms; `pace` is for the batches."""

    tolerance: float = 0.05
    max_fill: float = MAX_FILL
    pace: MovePace = field(default_factory=MovePace)


DEFAULT_GOALS: Final = Goals()


class Placement:
    """`replicas[p]` are broker indexes in their order, the preferred leader first; `home[p]` those of before.

    `limit[b]` is what broker b should hold at most, `room[b]` what its disks can hold up to the fill limit, and
    `rate_limit[b]` what may be written to it at most because of a plan.
    """

    def __init__(
        self,
        model: Model,
        goals: Goals,
        *,
        removed: Collection[int] = (),
        factors: Mapping[str, int] | None = None,
    ) -> None:
        self.model = model
        self.goals = goals
        weights = receivers_of(model, removed)
        self.floor: Floor = reachable(model, weights, factors)
        self.mean = mean_of(model, weights, factors)
        brokers, partitions = model.brokers, model.partitions
        self.ids = [broker.id for broker in brokers]
        index = {broker.id: at for at, broker in enumerate(brokers)}
        racks = {rack: at for at, rack in enumerate(sorted({broker.rack or "" for broker in brokers}))}
        self.rack = [racks[broker.rack or ""] for broker in brokers]
        self.weight = [weights.get(broker.id, 0.0) for broker in brokers]
        self.receives = [broker.can_receive and broker.id not in removed for broker in brokers]
        self.limit = [self.floor.level * self.mean * weight * (1 + goals.tolerance) for weight in self.weight]
        self.room = [inf if broker.room is None else float(broker.room) for broker in brokers]
        largest = [
            max((disk.room for disk in broker.disks if disk.can_receive and disk.room is not None), default=None)
            for broker in brokers
        ]
        self.largest_disk = [inf if room is None else float(room) for room in largest]
        self.size = [each.size for each in partitions]
        self.rate = [each.rate for each in partitions]
        self.movable = [not each.fixed for each in partitions]
        self.replicas = [[index[broker] for broker in each.replicas] for each in partitions]
        self.home = [frozenset(each) for each in self.replicas]
        live = {self.rack[at] for at in range(len(brokers)) if self.receives[at]}
        self.racks_wanted = [
            min(racks_wanted(model, (factors or {}).get(each.topic, len(each.replicas))), max(1, len(live)))
            for each in partitions
        ]
        self.on: list[set[int]] = [set() for _ in brokers]
        self._sorted: list[list[int] | None] = [None] * len(brokers)
        self.load = [0.0] * len(brokers)
        self.rate_in = [0.0] * len(brokers)
        for p, held in enumerate(self.replicas):
            for b in held:
                self._add(p, b)
        even = sum(self.rate_in) / max(1, sum(self.receives))
        every = sum(self.weight) or 1.0
        share = [max(even, sum(self.rate_in) * weight / every) for weight in self.weight]
        written = {
            broker.id: part for broker, part in zip(brokers, share, strict=True) if broker.id in weights and part
        }
        least = reachable(model, written, factors, by_rate).level * mean_of(model, written, factors, by_rate)
        self.rate_limit = [
            max(now, RATE_TOLERANCE * part, (1 + goals.tolerance) * least * part)
            for now, part in zip(self.rate_in, share, strict=True)
        ]

    # Changing it

    def move(self, p: int, source: int, target: int) -> None:
        """Move the replica of `p` from one broker to another, at the same position in the order."""
        held = self.replicas[p]
        held[held.index(source)] = target
        self._drop(p, source)
        self._add(p, target)

    def add(self, p: int, target: int) -> None:
        """Add a replica, the last of the order."""
        self.replicas[p].append(target)
        self._add(p, target)

    def remove(self, p: int, source: int) -> None:
        """Remove a replica."""
        self.replicas[p].remove(source)
        self._drop(p, source)

    def by_size(self, b: int) -> list[int]:
        """Return the replicas of a broker that may move and have bytes, smallest first. It changes with every move."""
        known = self._sorted[b]
        if known is None:
            held = (p for p in self.on[b] if self._may_be_sorted(p))
            known = self._sorted[b] = sorted(held, key=self._size_then_index)
        return known

    def _may_be_sorted(self, p: int) -> bool:
        return bool(self.size[p]) and self.movable[p]

    def _size_then_index(self, p: int) -> tuple[int, int]:
        return self.size[p], p

    def _add(self, p: int, b: int) -> None:
        self.on[b].add(p)
        known = self._sorted[b]
        if known is not None and self._may_be_sorted(p):
            insort(known, p, key=self._size_then_index)
        self.load[b] += self.size[p]
        self.rate_in[b] += self.rate[p]

    def _drop(self, p: int, b: int) -> None:
        self.on[b].discard(p)
        known = self._sorted[b]
        if known is not None and self._may_be_sorted(p):
            del known[bisect_left(known, (self.size[p], p), key=self._size_then_index)]
        self.load[b] -= self.size[p]
        self.rate_in[b] -= self.rate[p]

    # What is allowed

    def racks_of(self, p: int, without: int = -1) -> set[int]:
        """Return the racks of its replicas, but for one."""
        return {self.rack[b] for b in self.replicas[p] if b != without}

    def may_go(self, p: int, source: int, target: int) -> bool:
        """Return whether `p` may go from one broker to another: not twice there, no rack less, room on its disks."""
        held = self.replicas[p]
        if target in held or not self.receives[target] or not self.movable[p]:
            return False
        size = self.size[p]
        if self.load[target] + size > self.room[target] or size > self.largest_disk[target]:
            return False
        racks = self.racks_of(p, without=source)
        after = len(racks | {self.rack[target]})
        before = len(racks | {self.rack[source]}) if source in held else len(racks)
        # A replica that has to go may cost a rack that has no other broker; none that could stay may.
        return after >= before or (after >= self.racks_wanted[p] and not self.receives[source])

    def may_exchange(self, p: int, b: int, other: int, t: int) -> bool:
        """Return whether `p` of broker b and `other` of t may change places."""
        if other in self.on[b] or p in self.on[t] or not (self.movable[p] and self.movable[other]):
            return False
        if not (self.receives[b] and self.receives[t]):
            return False
        gain = self.size[p] - self.size[other]
        if self.load[t] + gain > self.room[t] or self.load[b] - gain > self.room[b]:
            return False
        if self.size[p] > self.largest_disk[t] or self.size[other] > self.largest_disk[b]:
            return False
        return self._keeps_racks(p, b, t) and self._keeps_racks(other, t, b)

    def may_trade(self, ours: Collection[int], b: int, theirs: Collection[int], t: int) -> bool:
        """Return whether a set of replicas of broker b and one of broker t may be swapped."""
        if not (self.receives[b] and self.receives[t]):
            return False
        gain = sum(self.size[p] for p in ours) - sum(self.size[p] for p in theirs)
        if self.load[t] + gain > self.room[t] or self.load[b] - gain > self.room[b]:
            return False
        return all(self._may_change(p, b, t) for p in ours) and all(self._may_change(p, t, b) for p in theirs)

    def _may_change(self, p: int, source: int, target: int) -> bool:
        if p in self.on[target] or not self.movable[p] or self.size[p] > self.largest_disk[target]:
            return False
        return self._keeps_racks(p, source, target)

    def _keeps_racks(self, p: int, source: int, target: int) -> bool:
        if self.rack[source] == self.rack[target]:
            return True
        racks = self.racks_of(p, without=source)
        return len(racks | {self.rack[target]}) >= len(racks | {self.rack[source]})

    # What it costs

    def cost(self, p: int, source: int, target: int) -> int:
        """Return the bytes that are copied more, or less, if `p` goes: home is free, and so is what moves already."""
        size = self.size[p]
        return (size if target not in self.home[p] else 0) - (size if source not in self.home[p] else 0)

    def level(self, b: int) -> float:
        """Return the bytes of a broker over its part."""
        share = self.weight[b] * self.mean
        return self.load[b] / share if share > 0 else inf

    def excess(self, b: int) -> float:
        """Return how many bytes it has too many."""
        return self.load[b] - self.limit[b]

    def by_room(self) -> list[int]:
        """Return the brokers that receive, those with most room below their limit first."""
        order = [b for b in range(len(self.ids)) if self.receives[b]]
        order.sort(key=lambda b: (self.load[b] - self.limit[b], b))
        return order
