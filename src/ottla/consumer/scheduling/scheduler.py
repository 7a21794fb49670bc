"""Deficit round robin over partitions: no partition starves behind a hot one.

Partitions with records are in a ring. A turn allows `quantum × weight` records or bytes. What the last record took
beyond that is a debt, paid from later turns: a record larger than a quantum passes, and its partition then waits. After
a turn the partition goes to the tail, or leaves the ring until it is activated again, at the tail.

The bound that follows, and that the property test states: while partitions A and B both stand in the ring, A gets at
most one turn between two turns of B; in records that is at most one quantum. (Shreedhar and Varghese, 1995; the
variant with debt is known as surplus round robin.)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class DeficitRoundRobin(Generic[K]):
    """The ring of partitions. `activate` and `deactivate` add and remove a key; `next_turn` and `spent` advance the
    ring."""

    __slots__ = ("_debts", "_quantum", "_ring", "_weights")

    def __init__(self, *, quantum: int) -> None:
        if quantum < 1:
            raise ValueError(f"quantum must be 1 or more, got {quantum}")
        self._quantum = quantum
        self._ring: OrderedDict[K, None] = OrderedDict()
        self._debts: dict[K, int] = {}
        self._weights: dict[K, int] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._ring

    def __len__(self) -> int:
        return len(self._ring)

    def set_weight(self, key: K, weight: int) -> None:
        """Give `key` turns of `weight` quanta; 1 is the default."""
        if weight < 1:
            raise ValueError(f"{key}: weight must be 1 or more, got {weight}")
        self._weights[key] = weight

    def activate(self, key: K) -> None:
        """Add `key`, which has records, at the tail; it keeps its place if it is in the ring."""
        if key not in self._ring:
            self._ring[key] = None

    def deactivate(self, key: K) -> None:
        """Remove `key`, which has no records now. Its debt stays: leaving must not pay."""
        self._ring.pop(key, None)

    def forget(self, key: K) -> None:
        """Remove `key` with its debt and weight: the partition was revoked."""
        self._ring.pop(key, None)
        self._debts.pop(key, None)
        self._weights.pop(key, None)

    def next_turn(self) -> tuple[K, int] | None:
        """Remove from the ring and return the partition whose turn it is, with its allowance; None if all are idle."""
        ring = self._ring
        while ring:
            key = next(iter(ring))
            allowance = self._quantum * self._weights.get(key, 1) - self._debts.pop(key, 0)
            if allowance > 0:
                del ring[key]
                return key, allowance
            self._debts[key] = -allowance
            ring.move_to_end(key)
        return None

    def spent(self, key: K, *, allowance: int, cost: int) -> None:
        """End a turn: `cost` was handed out. What exceeds the allowance is a debt, the rest of it is forfeited."""
        if cost > allowance:
            self._debts[key] = cost - allowance
