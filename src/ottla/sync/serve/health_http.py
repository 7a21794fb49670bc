"""The health of an app over HTTP, for probes: two threads, the standard library, four paths.

`/health/live` answers 200 or 503 by `Health.is_alive`, `/health/ready` by `Health.is_ready`, `/health` is the readiness
with every partition. The body is JSON and says what is wrong. `/metrics` is Prometheus' text, where its library is.

Probes are answered at once: one thread measures, and if that takes long (an event loop that a handler blocks does not
answer), the other one answers with what was measured last. It serves all connections, of which there are few, each with
a limit of time: a port that anybody reaches in the cluster must cost the service nothing.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ottla.app.runtime.health_paths import answer
from ottla.consumer.readiness.health import Health
from ottla.sync.serve.small_http import HttpAnswer, SmallServer
from ottla.telemetry.sdk_setup import prometheus_text

_FRESH_S: Final = 0.2
"""How long a probe waits for a new measurement. The kubelet waits for a second by default."""
_STALE_S: Final = 3.0
"""Age above which the last measurement no longer proves readiness."""


class HealthServer:
    """Serves `health()` until `close`. Port 0 takes a free one; `port` says which."""

    def __init__(self, health: Callable[[], Health], *, host: str = "127.0.0.1", port: int = 0) -> None:
        scrape = prometheus_text()
        self._measured = MeasuredHealth(health)

        def respond(path: str) -> HttpAnswer:
            if scrape is not None and path.split("?")[0].rstrip("/") == "/metrics":
                content_type, payload = scrape()
                return HttpAnswer(200, content_type, payload)
            status, body = answer(self._measured.latest(), path)
            return HttpAnswer(status, "application/json", json.dumps(body).encode())

        self._server = SmallServer(respond, host=host, port=port, name="ottla-health")
        self.port: int = self._server.port

    def close(self) -> None:
        self._server.close()
        self._measured.close()


class MeasuredHealth:
    """The last result of `health()`, which a thread of its own calls from the first probe on."""

    def __init__(self, health: Callable[[], Health]) -> None:
        self._health = health
        self._changed = threading.Condition()
        self._found: Health | None = None
        self._found_s = 0.0
        self._asked_s = 0.0
        self._wanted = 0
        self._done = 0
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def latest(self) -> Health:
        """Return the health now, if it is known soon, else what was measured last."""
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._measure, name="ottla-health-measure", daemon=True)
                self._thread.start()
            now_s = time.monotonic()
            if self._done == self._wanted:
                self._wanted += 1
                self._asked_s = now_s
                self._changed.notify_all()
            wanted = self._wanted
            self._changed.wait_for(lambda: self._done >= wanted, max(0.0, self._asked_s + _FRESH_S - now_s))
            age_s = time.monotonic() - self._found_s
            if self._found is None:
                return Health(is_alive=True, is_ready=False, problems=("the app has not said yet how it is",))
            if self._done >= wanted or age_s < _STALE_S:
                return self._found
            problem = f"the app has not said for {age_s:.0f} s how it is: something blocks its event loop, or its lock"
            return replace(self._found, is_ready=False, problems=(*self._found.problems, problem))

    def age_ms(self) -> int:
        """Return how old the last result is, in milliseconds; 0 before the first one."""
        with self._changed:
            return 0 if self._found is None else round((time.monotonic() - self._found_s) * 1_000)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _measure(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._done < self._wanted)
                if self._is_closed:
                    return
                wanted = self._wanted
            try:
                found = self._health()
            except Exception as error:  # a probe is answered, whatever is wrong
                found = Health(is_alive=True, is_ready=False, problems=(f"{type(error).__name__}: {error}",))
            with self._changed:
                self._found, self._found_s, self._done = found, time.monotonic(), wanted
                self._changed.notify_all()
