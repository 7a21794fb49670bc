"""Hears what brokers say of quotas, as librdkafka tells it."""

from __future__ import annotations

from typing import Any

from ottla.telemetry import Throttling


def hearing(throttling: Throttling, config: dict[str, Any]) -> dict[str, Any]:
    """The client's configuration with a `throttle_cb`, which calls the user's own as well."""
    users = config.get("throttle_cb")

    def on_throttle(event: Any) -> None:
        throttling.heard(broker=event.broker_id, throttle_ms=round(event.throttle_time * 1_000))
        if users is not None:
            users(event)

    return {**config, "throttle_cb": on_throttle}
