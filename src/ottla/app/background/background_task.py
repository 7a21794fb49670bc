"""A background task of an app, in a thread of its own, which restarts when it fails: a scheduler, or an outbox
relay."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from ottla.consumer.readiness.health import Health
from ottla.current_task import is_on_event_loop
from ottla.failures.exceptions import described
from ottla.telemetry import Hooks

_AGAIN_S: Final = 5.0


class AppSettings(Protocol):
    """What works beside an app takes of it."""

    group: str
    bootstrap_servers: str | Sequence[str] | None
    settings: dict[str, Any]
    producer_settings: dict[str, Any]
    hooks: Hooks | None
    start_timeout_s: float | None
    drain_s: float


class RestartedWork(Protocol):
    """The work itself."""

    def run(self) -> None: ...

    def stop(self) -> None: ...

    def health(self) -> Health: ...


class BackgroundTask(ABC):
    """Opened when the app starts, closed when it has stopped. It waits for no handler, and no handler for it.

    `name` stands in the thread's name and in the health, `close_s` is how long a close waits for the work to end.
    """

    def __init__(self, name: str, *, close_s: float) -> None:
        self._name = name
        self._close_s = close_s
        self._lock = threading.Lock()
        self._work: RestartedWork | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._error: str | None = None

    @abstractmethod
    def _made(self) -> RestartedWork:
        """Return new work: work that failed is not used again."""

    @abstractmethod
    def _begin(self, work: RestartedWork) -> None:
        """Check what the first run needs. Raises what the app shall not start with."""

    @abstractmethod
    def _log_failure(self, error: str) -> None: ...

    def open(self) -> Awaitable[None] | None:
        """Begin, or raise what is wrong with the settings; what is away for a while is waited for."""
        return in_thread(self._open)

    def close(self) -> Awaitable[None] | None:
        """End the work, and wait for it."""
        return in_thread(self._close)

    def health(self) -> Health:
        """Return the health: alive as long as its app is, and healthy while it does not run, as the app itself reports
        that."""
        error, work = self._error, self._work
        if error is not None:
            problem = f"the {self._name} ended, and begins again: {error}"
            return Health(is_alive=True, is_ready=False, problems=(problem,))
        return Health(is_alive=True, is_ready=True) if work is None else work.health()

    def _open(self) -> None:
        self._stopping.clear()
        work = self._made()
        self._begin(work)
        self._work = work
        self._thread = threading.Thread(target=self._run, args=(work,), name=f"ottla-{self._name}", daemon=True)
        self._thread.start()

    def _close(self) -> None:
        with self._lock:
            self._stopping.set()
            if self._work is not None:
                self._work.stop()
        if self._thread is not None:
            self._thread.join(self._close_s)
        self._work = self._thread = self._error = None

    def _run(self, work: RestartedWork | None) -> None:
        while work is not None:
            try:
                work.run()
                return
            except Exception as error:  # its service goes on; what waits is done when it works again
                self._error = described(error)
                self._log_failure(self._error)
            if self._stopping.wait(_AGAIN_S):
                return
            work = self._again()

    def _again(self) -> RestartedWork | None:
        """Return the next one, unless a close came first: it would stop only the last."""
        with self._lock:
            if self._stopping.is_set():
                return None
            self._work = self._made()
            self._error = None
            return self._work


def in_thread(function: Callable[[], None]) -> Awaitable[None] | None:
    """Call it; on an event loop in a thread, to be awaited."""
    if is_on_event_loop():
        return asyncio.to_thread(function)
    function()
    return None
