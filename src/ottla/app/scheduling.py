"""The scheduler that runs beside an app, in a thread of its own: `App(scheduler=True)`."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Awaitable, Mapping
from typing import Any, Final

from ottla.consumer.readiness.health import Health
from ottla.failures.exceptions import described
from ottla.telemetry import Hooks, log_event

_MODULE: Final = "ottla.sync.serve.scheduler"
_AGAIN_S: Final = 5.0


class AppScheduler:
    """Opened when the app starts, closed when it has stopped. It waits for no handler, and no handler for it."""

    def __init__(
        self, name: str, bootstrap_servers: Any, settings: Mapping[str, Any], hooks: Hooks | None = None
    ) -> None:
        self._hooks = hooks
        self._error: str | None = None
        self._name = name
        self._bootstrap_servers = bootstrap_servers
        self._settings = dict(settings)
        self._scheduler: Any = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def open(self) -> Awaitable[None] | None:
        """Check the schedule's topic, and begin. Raises what `Scheduler.start` raises."""
        return in_thread(self._open)

    def close(self) -> Awaitable[None] | None:
        """Let go of the slots."""
        return in_thread(self._close)

    def health(self) -> Health:
        """Of the scheduler: it is alive as long as its app is, and begins again when it ended."""
        if self._error is not None:
            problem = f"the scheduler of {self._name!r} ended, and begins again: {self._error}"
            return Health(is_alive=True, is_ready=False, problems=(problem,))
        if self._thread is None:  # the app has not started, or has stopped: that is said by its members
            return Health(is_alive=True, is_ready=True)
        health: Health = self._scheduler.health()
        return health

    def _open(self) -> None:
        self._stopping.clear()
        self._scheduler = self._made()
        self._scheduler.start()
        self._thread = threading.Thread(target=self._run, name=f"ottla-scheduler-{self._name}", daemon=True)
        self._thread.start()

    def _close(self) -> None:
        self._stopping.set()
        if self._scheduler is not None:
            self._scheduler.stop()
        if self._thread is not None:
            self._thread.join(30)
        self._thread = self._error = None

    def _run(self) -> None:
        while True:
            try:
                self._scheduler.start()
                self._error = None
                self._scheduler.run()
                return
            except Exception as error:  # its service goes on; what waits is delivered when it works again
                self._error = described(error)
                log_event("scheduler_failed", "error", {"schedule": self._name, "error": described(error)})
            if self._stopping.wait(_AGAIN_S):
                return
            self._scheduler = self._made()

    def _made(self) -> Any:
        make = importlib.import_module(_MODULE).Scheduler
        return make(self._bootstrap_servers, name=self._name, settings=self._settings, hooks=self._hooks)


def in_thread(function: Any) -> Awaitable[None] | None:
    """Call it; on an event loop in a thread, to be awaited."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        function()
        return None
    return asyncio.to_thread(function)
