"""Time under control: a clock that stands still, runs faster, or is moved by a test, and the loop that follows it.

The clock is loaded when it is asked for: most brokers follow the system's, and shall start quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_embedded.cluster.time.event_loop import new_event_loop as new_event_loop
from broker_embedded.cluster.time.event_loop import settle as settle
from broker_embedded.cluster.time.event_loop import time_passing as time_passing

if TYPE_CHECKING:
    from broker_embedded.cluster.time.virtual_clock import VirtualClock as VirtualClock


def __getattr__(name: str) -> Any:
    if name == "VirtualClock":
        from broker_embedded.cluster.time.virtual_clock import VirtualClock

        return VirtualClock
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
