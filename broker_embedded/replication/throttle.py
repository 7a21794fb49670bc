"""Limits how fast replicas that are being moved are copied: `leader.replication.throttled.*`, `follower...` (KIP-73).

The topic's setting says which replicas (`partition:broker`, or `*` for all), the broker's how many bytes per second.
Replicas that are in sync are never held up: acknowledgements wait for them. Bytes are counted when they were copied, so
a copy may overdraw, and the next one waits until that is made good.

Two things differ from Kafka, which averages over eleven seconds, lets as much through at once, and counts what replicas
in sync copy as well. Here at most a fifth of a second is saved up, so that a small move is throttled too, and busy
producers leave a move its rate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker_embedded.common.config_definition import LONG_MAX

if TYPE_CHECKING:
    from broker_embedded.replication.partition import Partition

SAVED_UP_MS = 200
"""Longer than the interval of a follower's fetches, which must not reduce the rate, and as short as that allows,
because this much may pass in one burst.
"""
LONGEST_WAIT_MS = 1_000
"""The rate may be raised meanwhile."""
ALL = "*"


class ByteBudget:
    """How many bytes may be copied now."""

    def __init__(self, *, rate: Callable[[], int], now_ms: Callable[[], int]) -> None:
        """`rate`: bytes per second, read again each time."""
        self._rate = rate
        self._now_ms = now_ms
        self._left: float = 0.0
        self._as_of_ms = now_ms() - SAVED_UP_MS

    @property
    def is_limited(self) -> bool:
        return self._rate() < LONG_MAX

    @property
    def is_spent(self) -> bool:
        return self.is_limited and self._refilled() <= 0

    @property
    def wait_ms(self) -> int:
        """Return the time until some quota is available, at most LONGEST_WAIT_MS."""
        rate = self._rate()
        left = self._refilled() if rate < LONG_MAX else 1.0
        if left > 0:
            return 0
        return LONGEST_WAIT_MS if rate <= 0 else min(int(-left * 1000 / rate) + 1, LONGEST_WAIT_MS)

    def spend(self, size: int) -> None:
        if self.is_limited:
            self._left = self._refilled() - size

    def _refilled(self) -> float:
        now_ms = self._now_ms()
        rate = self._rate()
        self._left = min(self._left + (now_ms - self._as_of_ms) * rate / 1000, rate * SAVED_UP_MS / 1000)
        self._as_of_ms = now_ms
        return self._left


class ReplicationThrottle:
    """One side of replication on one broker: its traffic as a leader, or its fetches as a follower."""

    def __init__(
        self,
        *,
        node_id: int,
        rate: Callable[[], int],
        replicas_of: Callable[[str], tuple[str, ...]],
        now_ms: Callable[[], int],
    ) -> None:
        """`replicas_of`: the throttled replicas of a topic, as its settings name them."""
        self._node_id = node_id
        self._replicas_of = replicas_of
        self._budget = ByteBudget(rate=rate, now_ms=now_ms)

    def holds(self, partition: Partition, replica: int) -> bool:
        """Return whether nothing may be copied to `replica` now."""
        if not self._budget.is_limited or replica in partition.isr:
            return False
        return self._covers(partition) and self._budget.is_spent

    def wait_ms(self) -> int:
        return self._budget.wait_ms

    def record(self, partition: Partition, replica: int, size: int) -> None:
        """Count `size` bytes of the partition that were copied to `replica`."""
        if self._budget.is_limited and replica not in partition.isr and self._covers(partition):
            self._budget.spend(size)

    def _covers(self, partition: Partition) -> bool:
        topic, number = partition.topic_partition
        named = self._replicas_of(topic)
        return ALL in named or f"{number}:{self._node_id}" in named
