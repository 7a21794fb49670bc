"""The event loop that fits a clock."""

from __future__ import annotations

import asyncio

from broker_embedded.cluster.time.virtual_clock import VirtualClock
from broker_embedded.cluster.time.virtual_loop import VirtualTimeLoop
from broker_embedded.common.clock import Clock


def new_event_loop(clock: Clock | None) -> asyncio.AbstractEventLoop:
    """A loop whose timers follow a `VirtualClock`; with any other clock, asyncio's own.

    Any other clock moves what is decided by the clock (retention, expiry), while timers run in real time.
    """
    return VirtualTimeLoop(clock) if isinstance(clock, VirtualClock) else asyncio.SelectorEventLoop()
