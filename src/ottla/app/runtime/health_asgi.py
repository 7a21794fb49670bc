"""An app's health and metrics as an ASGI application, to be mounted in a web application: it imports no framework."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from ottla.app.app import App
from ottla.app.runtime.health_paths import answer
from ottla.telemetry.sdk_setup import prometheus_text

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


class HealthASGI:
    """Answers `/health`, `/health/live`, `/health/ready` and `/metrics`, below the path that it is mounted at."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._scrape = prometheus_text()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":  # where it is not mounted but the whole application
            await _pass_lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        # Below a mount some servers have the whole path here, and some what is left of it.
        path = str(scope.get("path", "")).removeprefix(str(scope.get("root_path", "")))
        if scope.get("method") not in ("GET", "HEAD"):
            status, content_type, payload = 405, "application/json", b'{"error": "wanted GET"}'
        elif path.rstrip("/") == "/metrics" and self._scrape is not None:
            content_type, payload = self._scrape()
            status = 200
        else:
            status, body = answer(self._app.health(), path)
            content_type, payload = "application/json", json.dumps(body).encode()
        headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(payload)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else payload})


async def _pass_lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
