"""An app that runs beside the test, in a thread, and is stopped gracefully in the end."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping
from types import TracebackType

from ottla.app import App


class RunningApp:
    """`app.run()` in a thread. `stop()` drains, commits, leaves the group, and raises what ended the app.

    `settings` are what clients of the cluster need, where the app does not choose by itself.
    """

    def __init__(self, app: App, bootstrap_servers: str, *, settings: Mapping[str, str] | None = None) -> None:
        importlib.import_module("ottla.sync.runner")  # here, so that an import error is the test's, not the thread's
        self.app = app
        self._error: BaseException | None = None
        self._previous = app.bootstrap_servers, app.settings, app.producer_settings
        app.bootstrap_servers = bootstrap_servers
        app.settings = {**(settings or {}), **app.settings}
        app.producer_settings = {**(settings or {}), **app.producer_settings}
        self._thread = threading.Thread(target=self._run, name=f"app-{app.group}", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stop gracefully. Safe to call twice."""
        if self._thread.is_alive():
            self.app.stop()
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                raise TimeoutError(f"app {self.app.group!r} did not stop in {timeout_s} s: {self.app.health()}")
        self.app.bootstrap_servers, self.app.settings, self.app.producer_settings = self._previous
        error, self._error = self._error, None
        if error is not None:
            raise error

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
