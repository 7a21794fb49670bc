"""When a batch is worth handing out: as soon as it is full, or has waited long enough (batch handlers with a linger).

The wait counts from when the first record of the batch came, whether a worker was free or not: a record waits for more
of its kind at most once, and never behind a retry, a full buffer or somebody who drains.
"""

from __future__ import annotations


class Linger:
    """One partition's wait. `wake_ms` is when it is over; None while nothing waits."""

    __slots__ = ("_linger_ms", "_most", "wake_ms")

    def __init__(self, *, linger_ms: int, most: int) -> None:
        self._linger_ms = linger_ms
        self._most = most
        self.wake_ms: int | None = None

    def came(self, *, waiting: int, now_ms: int) -> int | None:
        """Records came. Returns when to look again, if a wait begins with them."""
        if self.wake_ms is not None or waiting == 0:
            return None
        self.wake_ms = now_ms + self._linger_ms
        return self.wake_ms

    def waits(self, *, waiting: int, now_ms: int) -> bool:
        """Whether the batch is still to wait."""
        is_over = self.wake_ms is None or now_ms >= self.wake_ms
        return not is_over and waiting < self._most

    def taken(self, *, waiting: int, now_ms: int) -> int | None:
        """A batch was handed out. Returns when to look again after what is left, None when nothing is."""
        self.wake_ms = None
        return self.came(waiting=waiting, now_ms=now_ms)
