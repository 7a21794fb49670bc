"""Hears what brokers say of quotas in the answers to an aiokafka client, which itself tells nobody."""

from __future__ import annotations

from typing import Any

from ottla.telemetry import Throttling


def hear_throttling(client: Any, throttling: Throttling) -> None:
    """From now on. `client` is aiokafka's own network client: what a producer and a consumer ask their brokers by."""
    send = client.send

    async def send_and_hear(node_id: int, *args: Any, **more: Any) -> Any:
        answer = await send(node_id, *args, **more)
        throttle_ms = getattr(answer, "throttle_time_ms", 0)
        if throttle_ms:
            throttling.heard(broker=node_id, throttle_ms=throttle_ms)
        return answer

    client.send = send_and_hear
