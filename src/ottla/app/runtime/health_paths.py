"""What the paths of an app's health answer: `/health`, `/health/live`, `/health/ready`."""

from __future__ import annotations

from typing import Any

from ottla.consumer.readiness.health import Health
from ottla.telemetry.sdk_setup import INSTALL


def answer(health: Health, path: str) -> tuple[int, dict[str, Any]]:
    """Return status and body for a path."""
    return answer_of(body_of(health), path)


def answer_of(body: dict[str, Any], path: str) -> tuple[int, dict[str, Any]]:
    """Return the same of the body of `/health`."""
    path = path.split("?")[0].rstrip("/")
    if path == "/metrics":
        return 404, {"error": f"/metrics needs OpenTelemetry's SDK and Prometheus' client: {INSTALL}"}
    if path == "/health/live":
        return (200 if body["alive"] else 503), {"alive": body["alive"], "problems": body["problems"]}
    if path not in ("/health", "/health/ready"):
        return 404, {"error": f"{path or '/'} is not here; try /health, /health/live, /health/ready or /metrics"}
    return (200 if body["ready"] else 503), body


def body_of(health: Health) -> dict[str, Any]:
    """Return what `/health` answers."""
    return {
        "ready": health.is_ready,
        "alive": health.is_alive,
        "problems": list(health.problems),
        "limited": list(health.limited),
        "partitions": [
            {
                "partition": str(partition.topic_partition),
                "oldest_unfinished_age_ms": partition.oldest_unfinished_age_ms,
                "oldest_unfinished_offset": partition.oldest_unfinished_offset,
                "buffered_records": partition.buffered_records,
                "stopped": partition.stopped,
                "handler_running_ms": partition.handler_running_ms,
            }
            for partition in health.partitions
        ],
    }
