"""The event loop that fits a clock."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext

from broker_embedded.common.clock import Clock


def new_event_loop(clock: Clock | None) -> asyncio.AbstractEventLoop:
    """Return a loop whose timers follow a `VirtualClock`; with any other clock, asyncio's own.

    Any other clock moves what is decided by the clock (retention, expiry), while timers run in real time.
    """
    if clock is None:
        return asyncio.SelectorEventLoop()
    from broker_embedded.cluster.time.virtual_clock import VirtualClock
    from broker_embedded.cluster.time.virtual_loop import VirtualTimeLoop

    return VirtualTimeLoop(clock) if isinstance(clock, VirtualClock) else asyncio.SelectorEventLoop()


SETTLE_MS = 250


def time_passing(clock: Clock) -> AbstractContextManager[None]:
    """Run a frozen clock while the cluster itself is awaited (its start, an election)."""
    from broker_embedded.cluster.time.virtual_clock import VirtualClock

    return clock.passing() if isinstance(clock, VirtualClock) else nullcontext()


def settle(clock: Clock, *, brokers: int) -> None:
    """Run retries that are due soon, after a change of a cluster with a frozen clock."""
    from broker_embedded.cluster.time.virtual_clock import VirtualClock

    if brokers > 1 and isinstance(clock, VirtualClock) and not clock.speed:
        clock.advance(SETTLE_MS)
