"""Detects failed assertions in handlers, stopped partitions and lost workers of an app under test.

Such failures happen in other threads and tasks than the test's. `wait_until` raises an assertion that failed while the
test waits. The end of the app raises what is left.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ottla.app import App, Context
from ottla.app.app import declarations_of
from ottla.consumer.readiness.health import Health
from ottla.errors import LifecycleError, where_explained
from ottla.telemetry import Listeners


class AppFailed(AssertionError):
    """The app under test did not do its work to the end: `app.health()` said why."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.add_note(where_explained("AppFailed"))


class Watch(Listeners):
    """Watches an app's handlers from its start to its end. Hooks of the app itself still run."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._hooks = app.hooks
        self._has_stopped_partition = False
        self._failed: BaseException | None = None
        self._was_raised = False
        super().__init__(app.hooks)
        app.hooks = self
        declarations_of(app).outermost = self._around
        _watched.append(self)

    def end(self) -> None:
        """Leave the app as it was."""
        self._app.hooks = self._hooks
        declarations_of(self._app).outermost = None
        if self in _watched:
            _watched.remove(self)

    def take_failure(self) -> BaseException | None:
        """Return the first assertion that failed in a handler, once."""
        if self._was_raised or self._failed is None:
            return None
        self._was_raised = True
        return self._failed

    def failure(self, health: Health | None) -> BaseException | None:
        """Return why the test must fail: an assertion, or the app's health. None: the app has ended."""
        if self._was_raised:
            return None  # the test knows, and has failed
        if self._failed is not None:
            return self.take_failure()
        problems = self._problems(health)
        return AppFailed(f"app {self._app.group!r}: {'; '.join(problems)}") if problems else None

    def _problems(self, health: Health | None) -> list[str]:
        if health is None:
            return ["a partition stopped before the app ended (the log says which)"] * self._has_stopped_partition
        stopped = any(partition.stopped is not None for partition in health.partitions)
        return list(health.problems) if stopped or not health.is_alive else []

    # Around every handler

    def _around(self, subject: Any, context: Context, call_next: Callable[[Any], Any]) -> Any:
        try:
            outcome = call_next(subject)
        except BaseException as error:
            self._note(error)
            raise
        return self._awaited(outcome) if inspect.iscoroutine(outcome) else outcome

    async def _awaited(self, outcome: Any) -> Any:
        try:
            return await outcome
        except BaseException as error:
            self._note(error)
            raise

    def _note(self, error: BaseException) -> None:
        is_pytests = type(error).__module__ == "_pytest.outcomes" and type(error).__name__ == "Failed"
        if self._failed is None and (isinstance(error, AssertionError) or is_pytests):
            self._failed = error

    # The app's own hooks go on

    def event(self, *, group: str, event: str) -> None:
        self._has_stopped_partition |= event == "partition_stopped"
        super().event(group=group, event=event)

    def __bool__(self) -> bool:
        return True


_watched: list[Watch] = []


def raise_failed_assertion() -> None:
    """Raise a failed assertion of a handler, in an app that runs beside the test."""
    for watch in list(_watched):
        failure = watch.take_failure()
        if failure is not None:
            raise failure


def health_of(app: App) -> Health | None:
    """Return the app's health, or None if it does not run."""
    try:
        return app.runner.health()
    except LifecycleError:
        return None
