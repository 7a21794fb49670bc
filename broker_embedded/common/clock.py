"""Time as an argument. Broker code never asks the operating system for the time; it asks the clock it was given."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for record timestamps, monotonic time for durations and deadlines."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds from a fixed point, never moving back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

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
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Move time forward by `ms` milliseconds; a clock never moves back."""
        if ms < 0:
            raise ValueError(f"time moves forward only, got {ms} ms")
        self._now_ms += ms
