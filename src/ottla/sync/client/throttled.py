"""Receives librdkafka's events about quota throttling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.telemetry import Throttling


def on_throttle(throttling: Throttling) -> Callable[[Any], None]:
    """Return the client's `throttle_cb`."""

    def on_event(event: Any) -> None:
        throttling.on_throttled(broker=event.broker_id, throttle_ms=round(event.throttle_time * 1_000))

    return on_event
