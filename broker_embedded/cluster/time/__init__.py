"""Time under control: a clock that stands still, runs faster, or is moved by a test, and the loop that follows it."""

from broker_embedded.cluster.time.event_loop import new_event_loop, settle, time_passing
from broker_embedded.cluster.time.virtual_clock import VirtualClock

__all__ = ["VirtualClock", "new_event_loop", "settle", "time_passing"]
