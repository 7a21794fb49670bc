"""A process of a service that another one has started (`ottla run --reload`, `--workers`), and the orders it obeys.

Orders come over the link, not as signals: Ctrl-C and systemd signal every process of the service, and a second signal
would end this process at once. The process ignores SIGINT until its app is loaded; its parent received it and sends the
order.
"""

from __future__ import annotations

import importlib
import os
import signal
import threading
from collections.abc import MutableMapping
from typing import Final

from ottla.app import App
from ottla.app.runtime.stop_signals import end_at_once
from ottla.processes.worker_link import RELOAD_VARIABLE, Message, WorkerLink
from ottla.sync.serve.health_http import MeasuredHealth

GO: Final[Message] = {"do": "go"}
"""To a process of `--reload`, which may have been kept ready: run the service."""
STOP: Final[Message] = {"do": "stop"}
"""Drain, commit, leave the group and end."""


def end_order(number: int) -> Message:
    """Return the order to end at once, as a second signal does."""
    return {"do": "end", "signal": number}


def of_reloader(environ: MutableMapping[str, str]) -> Orders | None:
    """Return the orders of `--reload`, when the service is to run; None if it has not started this process. Raises
    `SystemExit` if the process is not needed."""
    link = WorkerLink.of_environment(environ, RELOAD_VARIABLE)
    if link is None:
        return None
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the parent handles SIGTERM and closes the link
    if link.receive() != GO:
        raise SystemExit(0)
    signal.signal(signal.SIGTERM, before)
    importlib.invalidate_caches()  # a process that was kept ready: modules are newer than what it has found
    return Orders(link)


class Orders:
    """The orders to this process, obeyed by a thread of its own. It stops gracefully when its parent has died."""

    def __init__(self, link: WorkerLink) -> None:
        self._link = link
        self._app: App | None = None
        self._health: MeasuredHealth | None = None
        self._is_stop_asked = False
        threading.Thread(target=self._obey, name="ottla-orders", daemon=True).start()

    def obey_for(self, app: App) -> MeasuredHealth:
        """Stop this app from now on, at once if that was ordered before. Returns its health."""
        self._app = app
        if self._is_stop_asked:
            app.stop()
        self._health = MeasuredHealth(app.health)
        return self._health

    def carry_out(self, order: Message) -> None:
        """Obey one order. Others than these are of a newer parent, and ignored."""
        if order.get("do") == "stop":
            self._stop()
        elif order.get("do") == "end":
            self._end(int(order["signal"]))

    def _obey(self) -> None:
        while (order := self._link.receive()) is not None:
            self.carry_out(order)
        self._stop()

    def _stop(self) -> None:
        self._is_stop_asked = True  # before it looks for the app, which may come meanwhile
        if self._app is not None:
            self._app.stop()
        else:
            os.kill(os.getpid(), signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self._health is None:
            os._exit(128 + number)
        end_at_once(number, self._health.latest)
