"""Pauses between connections to a broker, the same for MQTT and AMQP.

A connection that ended soon is followed by a longer pause, even if messages came in: a message that cannot be written
ends it each time, a quorum queue counts each delivery, and two clients with one id end each other's.
"""

from __future__ import annotations

from typing import Final

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 30.0
LASTING_S: Final = 10.0
"""A connection that served for so long is followed by the first pause."""


def next_pause_s(pause_s: float, *, served_s: float) -> float:
    """Return the pause after a connection that received for `served_s`; `pause_s` is the previous pause."""
    return FIRST_PAUSE_S if served_s >= LASTING_S else min(LONGEST_PAUSE_S, 2 * pause_s)
