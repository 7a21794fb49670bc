"""Time as an argument: readers of a clock are given one, so that a test can hold it. Nothing else here reads one."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for record timestamps, monotonic time for durations and deadlines."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch, as Kafka's record timestamps count them."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds from a fixed point, never moving back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    now_s = staticmethod(time.time)
    """Return `now_ms` in seconds, for calls per record."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class ManualClock:
    """A clock that stands still until a test moves it."""

    __slots__ = ("_now_ms",)

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return milliseconds since the epoch; a new clock starts at the given time."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """Return the same milliseconds: both move with `advance`."""
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Move time forward by `ms` milliseconds. Raises `ValueError` for a negative number."""
        if ms < 0:
            raise ValueError(f"time moves forward only, got {ms} ms")
        self._now_ms += ms
