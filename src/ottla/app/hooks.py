"""What the shells say of `on_stop` hooks that fail: each hook is called, and the first error is raised in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.failures.exceptions import described, stack_trace_of
from ottla.telemetry import log_event


class StopHooks:
    """The account of an app's `on_stop` hooks."""

    def __init__(self, app: str) -> None:
        self._app = app
        self.error: BaseException | None = None
        """What the first hook that failed raised."""

    def failed(self, hook: Callable[[], Any], error: BaseException) -> None:
        """A hook raised. Those behind it are called all the same: each gives back something else."""
        self.error = self.error or error
        name = getattr(hook, "__qualname__", repr(hook))
        fields = {"app": self._app, "hook": name, "error": described(error), "exception": stack_trace_of(error)}
        log_event("stop_hook_failed", "error", fields)
