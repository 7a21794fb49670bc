"""The health of an app over HTTP, for probes: a thread, the standard library, four paths.

`/health/live` answers 200 or 503 by `Health.is_alive`, `/health/ready` by `Health.is_ready`, `/health` is the readiness
with every partition. The body is JSON and says what is wrong. `/metrics` is Prometheus' text, where its library is.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ottla.consumer.readiness.health import Health
from ottla.telemetry.sdk_setup import INSTALL, prometheus_text


class HealthServer:
    """Serves `health()` until `close`. Port 0 takes a free one; `port` says which."""

    def __init__(self, health: Callable[[], Health], *, host: str = "127.0.0.1", port: int = 0) -> None:
        scrape = prometheus_text()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if scrape is not None and self.path.split("?")[0].rstrip("/") == "/metrics":
                    content_type, payload = scrape()
                    status = 200
                else:
                    status, body = answer(health(), self.path)
                    content_type, payload = "application/json", json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, format: str, *args: Any) -> None:
                return  # A probe every few seconds is not an event.

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="ottla-health", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


def answer(health: Health, path: str) -> tuple[int, dict[str, Any]]:
    """Status and body for a path."""
    path = path.split("?")[0].rstrip("/")
    if path == "/metrics":
        return 404, {"error": f"/metrics needs OpenTelemetry's SDK and Prometheus' client: {INSTALL}"}
    if path == "/health/live":
        return (200 if health.is_alive else 503), {"alive": health.is_alive, "problems": list(health.problems)}
    if path not in ("/health", "/health/ready"):
        return 404, {"error": f"{path or '/'} is not here; try /health, /health/live, /health/ready or /metrics"}
    body = {
        "ready": health.is_ready,
        "alive": health.is_alive,
        "problems": list(health.problems),
        "partitions": [
            {
                "partition": str(partition.topic_partition),
                "oldest_unfinished_age_ms": partition.oldest_unfinished_age_ms,
                "oldest_unfinished_offset": partition.oldest_unfinished_offset,
                "buffered_records": partition.buffered_records,
                "stopped": partition.stopped,
            }
            for partition in health.partitions
        ],
    }
    return (200 if health.is_ready else 503), body
