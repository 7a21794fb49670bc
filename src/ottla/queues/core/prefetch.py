"""How many records a member leases beyond its free workers: what its workers will begin within a moment.

A fetch takes a round trip, and jobs that take less would wait for it. So the member leases as many records more as its
workers finish in `AHEAD_MS`, by their measured rate. A single worker whose jobs take longer has nothing leased ahead.

A record that was delivered before is a reason to lease nothing ahead for a while: one that ends its process would take
those that were leased with it down too, and each of them would lose a delivery.
"""

from __future__ import annotations

from typing import Final

AHEAD_MS: Final = 100
"""What is leased ahead is begun within about this time."""

MOST_AHEAD: Final = 1_000
"""Half of the records that may be in flight on a partition (`group.share.partition.max.record.locks`)."""

_MEASURED_MS: Final = 50
_CAREFUL_MS: Final = 1_000


class Prefetch:
    """The rate of one member's workers, and what follows from it. Not thread-safe."""

    __slots__ = ("_ahead", "_careful_until_ms", "_concurrency", "_finished", "_most", "_since_ms")

    def __init__(self, *, concurrency: int, most: int = MOST_AHEAD) -> None:
        """`most` is how many records may be leased ahead; 0 for none."""
        self._concurrency = concurrency
        self._most = most
        self._ahead = 0
        self._finished = 0
        self._since_ms = 0
        self._careful_until_ms = 0

    def finished(self) -> None:
        """Take in that a worker has finished a record that it had begun."""
        self._finished += 1

    def redelivered(self, now_ms: int) -> None:
        """Take in that a record came which was delivered before."""
        self._ahead = 0
        self._careful_until_ms = now_ms + _CAREFUL_MS

    def ahead(self, now_ms: int) -> int:
        """Return how many records may be leased beyond the free workers now. Each measurement at most doubles it."""
        elapsed_ms = now_ms - self._since_ms
        if elapsed_ms >= _MEASURED_MS:
            by_rate = self._finished * AHEAD_MS // elapsed_ms
            self._ahead = min(self._most, by_rate, 2 * self._ahead + self._concurrency)
            self._finished, self._since_ms = 0, now_ms
            if now_ms < self._careful_until_ms:
                self._ahead = 0
        return self._ahead
