"""Time as an argument. Broker code reads the clock it was given, never the operating system's.

There may be two times. What the cluster does by itself (retention, expiry, sessions, elections) follows its clock and
its loop, which a test can freeze and move. Waits that a client requested follow the client's time, which a test
cannot: `client_timer` and `client_monotonic_ms` are that one. Where there is one time only, they are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla_wire.clock import Clock, ManualClock, SystemClock

__all__ = ["Clock", "ManualClock", "SystemClock", "client_monotonic_ms", "client_timer"]


def client_timer(loop: asyncio.AbstractEventLoop) -> Callable[..., asyncio.TimerHandle]:
    """Start a timer, as `call_later`, for a wait that a client asked for."""
    timer: Callable[..., asyncio.TimerHandle] = getattr(loop, "call_later_real", loop.call_later)
    return timer


def client_monotonic_ms(clock: Clock) -> Callable[[], int]:
    """Return `monotonic_ms` for intervals between two actions of a client."""
    monotonic_ms: Callable[[], int] = getattr(clock, "real_monotonic_ms", clock.monotonic_ms)
    return monotonic_ms
