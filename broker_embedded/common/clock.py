"""Time as an argument. Broker code reads the clock it was given, never the operating system's.

There may be two times. What the cluster does by itself (retention, expiry, sessions, elections) follows its clock and
its loop, which a test can freeze and move. Waits that a client requested follow the client's time, which a test
cannot: `client_timer` and `client_monotonic_ms` are that one. Where there is one time only, they are the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Wall time for record timestamps, monotonic time for durations and deadlines."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds from a fixed point, never moving back."""
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


def client_timer(loop: asyncio.AbstractEventLoop) -> Callable[..., asyncio.TimerHandle]:
    """Start a timer, as `call_later`, for a wait that a client asked for."""
    timer: Callable[..., asyncio.TimerHandle] = getattr(loop, "call_later_real", loop.call_later)
    return timer


def client_monotonic_ms(clock: Clock) -> Callable[[], int]:
    """Return `monotonic_ms` for intervals between two actions of a client."""
    monotonic_ms: Callable[[], int] = getattr(clock, "real_monotonic_ms", clock.monotonic_ms)
    return monotonic_ms
