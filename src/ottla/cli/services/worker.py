"""One worker process of `ottla run --workers`: it reports to its supervisor, and obeys it.

It reports once a second, from a thread of its own: a handler that holds the interpreter, and a process that is stopped,
do not report. It stops gracefully when the supervisor has died.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, MutableMapping
from typing import Final

from ottla.app import App
from ottla.app.runtime.health_paths import body_of
from ottla.app.runtime.worker_checks import check_fits_workers
from ottla.cli.services.orders import Orders
from ottla.errors import ConfigError
from ottla.processes.worker_link import LINK_VARIABLE, Message, WorkerLink
from ottla.sync.serve.health_http import MeasuredHealth
from ottla.telemetry.sdk_setup import prometheus_text

REPORT_EVERY_S: Final = 1.0
_BEYOND_DRAIN_MS: Final = 40_000
"""For the close of dead letters, relay and scheduler, and for `on_stop` hooks."""
_HUNG_AFTER: Final = 5
"""Times `unready_after_s`: probes and alerts come first."""


class Worker(Orders):
    """This process. `of_environment` returns None unless a supervisor has started it."""

    @classmethod
    def of_environment(cls, environ: MutableMapping[str, str] = os.environ) -> Worker | None:
        link = WorkerLink.of_environment(environ, LINK_VARIABLE)
        return None if link is None else cls(link)

    def loaded(self, app: App, *, hung_after_s: float | None) -> None:
        """Report that the app was imported, and from now on how it is. Raises `ConfigError` if it cannot be right in
        several processes."""
        check_fits_workers(app)
        health = self.obey_for(app)
        hung_after_s = _HUNG_AFTER * app.unready_after_s if hung_after_s is None else hung_after_s
        self._link.send(
            {
                "said": "loaded",
                "group": app.group,
                "grace_ms": round(2_000 * app.drain_s) + _BEYOND_DRAIN_MS,
                "hung_after_ms": round(1_000 * hung_after_s),
            }
        )
        threading.Thread(target=self._report, args=(health,), name="ottla-worker-reports", daemon=True).start()

    @contextlib.contextmanager
    def reporting_refusals(self) -> Iterator[None]:
        """Report a `ConfigError` that the block raises: no restart helps."""
        try:
            yield
        except ConfigError:
            self._link.send({"said": "refused"})
            raise

    def _report(self, measured: MeasuredHealth) -> None:
        every = threading.Event()
        while True:
            health = measured.latest()
            running_ms = max((each.handler_running_ms for each in health.partitions), default=0)
            silent_ms = max(measured.age_ms(), health.blocked_ms)
            report = {"said": "report", "body": body_of(health), "stuck_ms": running_ms, "silent_ms": silent_ms}
            if not self._link.send(report):
                return
            every.wait(REPORT_EVERY_S)

    def carry_out(self, order: Message) -> None:
        """Obey one order of the supervisor."""
        if order.get("do") != "metrics":
            super().carry_out(order)
            return
        scrape = prometheus_text()
        content_type, text = ("", b"") if scrape is None else scrape()
        answer = {"said": "metrics", "id": order["id"], "content_type": content_type, "text": text.decode()}
        self._link.send(answer)
