"""Runs an app beside the test, in a thread or as a task, and stops it gracefully when the block ends."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Final

from ottla.app import App
from ottla.testing.watched import Watch, health_of

_STOP_S: Final = 30.0


class _Beside:
    """Shared by both ways of running: the app's address, its watch, and errors at the end."""

    def __init__(
        self, app: App, bootstrap_servers: str, *, settings: Mapping[str, str] | None, is_watched: bool
    ) -> None:
        self.app = app
        self._error: BaseException | None = None
        self._previous = app.bootstrap_servers, app.settings, app.producer_settings
        app.bootstrap_servers = bootstrap_servers
        app.settings = {**(settings or {}), **app.settings}
        app.producer_settings = {**(settings or {}), **app.producer_settings}
        self._watch = Watch(app) if is_watched else None
        self._is_over = False

    def _look(self) -> None:
        """Check the app's health before it is asked to stop: afterwards it has no partitions."""
        if self._watch is not None and self._error is None:
            self._error = self._watch.failure(health_of(self.app))

    def _raise_in_the_end(self) -> None:
        self.app.bootstrap_servers, self.app.settings, self.app.producer_settings = self._previous
        if self._watch is not None:
            self._watch.end()
        error, self._error = self._error, None
        if error is None and self._watch is not None:
            error = self._watch.take_failure()  # of what was handled while it stopped
        if error is not None:
            raise error

    def _too_late(self, timeout_s: float) -> TimeoutError:
        return TimeoutError(f"app {self.app.group!r} did not stop in {timeout_s} s: {self.app.health()}")


class RunningApp(_Beside):
    """`app.run()` in a thread. `stop()` drains, commits, leaves the group, and raises what ended the app.

    It also raises what the app would go on in spite of: an assertion that failed in a handler (`wait_until` raises it
    earlier), and `AppFailed` for a partition that stopped or a worker that died. A test in which those are wanted says
    `is_watched=False`. `settings` are what clients of the cluster need, where the app does not choose by itself.
    """

    def __init__(
        self,
        app: App,
        bootstrap_servers: str,
        *,
        settings: Mapping[str, str] | None = None,
        is_watched: bool = True,
    ) -> None:
        importlib.import_module(
            "ottla.sync.serve.runner"
        )  # here, so that an import error is the test's, not the thread's
        super().__init__(app, bootstrap_servers, settings=settings, is_watched=is_watched)
        self._thread = threading.Thread(target=self._run, name=f"app-{app.group}", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Return whether the app still runs."""
        return self._thread.is_alive()

    def stop(self, timeout_s: float = _STOP_S) -> None:
        """Stop gracefully. Safe to call twice."""
        if not self._is_over:
            self._is_over = True
            self._look()
        if self._thread.is_alive():
            self.app.stop()
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                raise self._too_late(timeout_s)
        self._raise_in_the_end()

    def _run(self) -> None:
        try:
            self.app.run(handle_signals=False)
        except BaseException as error:
            self._error = error

    def __enter__(self) -> RunningApp:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class ServedApp(_Beside):
    """`app.serve()` as a task on the test's event loop. `await stop()` raises what `RunningApp.stop` would.

    async with ServedApp(app, kafka.bootstrap_servers):
        ...
    """

    def __init__(
        self,
        app: App,
        bootstrap_servers: str,
        *,
        settings: Mapping[str, str] | None = None,
        is_watched: bool = True,
    ) -> None:
        importlib.import_module("ottla.aio.serve.runner")
        super().__init__(app, bootstrap_servers, settings=settings, is_watched=is_watched)
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Return whether the app still runs."""
        return self._task is not None and not self._task.done()

    async def start(self) -> ServedApp:
        """Begin. It belongs to the event loop that is running now."""
        if self._task is None:
            self._task = asyncio.create_task(self.app.serve(), name=f"app-{self.app.group}")
        return self

    async def stop(self, timeout_s: float = _STOP_S) -> None:
        """Stop gracefully. Safe to call twice."""
        if not self._is_over:
            self._is_over = True
            self._look()
        task = self._task
        if task is not None:
            if not task.done():
                self.app.stop()
            done, _ = await asyncio.wait([task], timeout=timeout_s)
            if not done:
                raise self._too_late(timeout_s)
            if not task.cancelled() and task.exception() is not None:
                self._error = task.exception()
            self._task = None
        self._raise_in_the_end()

    async def __aenter__(self) -> ServedApp:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
