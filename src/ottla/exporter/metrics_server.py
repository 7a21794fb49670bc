"""Serves the metrics over HTTP: `/metrics`, and probes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.exporter.prometheus_text import CONTENT_TYPE
from ottla.sync.serve.small_http import HttpAnswer, SmallServer

_TEXT: Final = "text/plain; charset=utf-8"


def metrics_server(
    scrape: Callable[[], bytes], problem: Callable[[], str | None], *, host: str, port: int
) -> SmallServer:
    """Serve until `close`. Raises `OSError` where nothing can listen."""

    def respond(path: str) -> HttpAnswer:
        match path.split("?")[0].rstrip("/"):
            case "/metrics":
                return HttpAnswer(200, CONTENT_TYPE, scrape())
            case "/health/live":
                return HttpAnswer(200, _TEXT, b"ok\n")
            case "/health/ready":
                found = problem()
                return HttpAnswer(200 if found is None else 503, _TEXT, f"{found or 'ok'}\n".encode())
            case "":
                return HttpAnswer(200, _TEXT, b"/metrics\n/health/live\n/health/ready\n")
            case _:
                return HttpAnswer(404, _TEXT, b"wanted /metrics, /health/live or /health/ready\n")

    return SmallServer(respond, host=host, port=port, name="ottla-exporter-http")
