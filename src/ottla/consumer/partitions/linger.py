"""When to hand out a batch: when it is full, or has waited for `linger_ms`.

The wait begins with the first record of the batch, whether a worker is free or not. A record waits for others at most
once, and never behind a retry, while the buffer is full, or while the app drains.
"""

from __future__ import annotations


class Linger:
    """The wait of one partition. `wake_ms` is when it ends; None while no record waits."""

    __slots__ = ("_linger_ms", "_most", "wake_ms")

    def __init__(self, *, linger_ms: int, most: int) -> None:
        self._linger_ms = linger_ms
        self._most = most
        self.wake_ms: int | None = None

    def came(self, *, waiting: int, now_ms: int) -> int | None:
        """Take in that records were fetched. Returns when to look again if a wait begins with them."""
        if self.wake_ms is not None or waiting == 0:
            return None
        self.wake_ms = now_ms + self._linger_ms
        return self.wake_ms

    def waits(self, *, waiting: int, now_ms: int) -> bool:
        """Return whether the batch is still to wait."""
        is_over = self.wake_ms is None or now_ms >= self.wake_ms
        return not is_over and waiting < self._most

    def taken(self, *, waiting: int, now_ms: int) -> int | None:
        """Take in that a batch was handed out. Returns when to look again for the rest; None if nothing is left."""
        self.wake_ms = None
        return self.came(waiting=waiting, now_ms=now_ms)
