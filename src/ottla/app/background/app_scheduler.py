"""The scheduler that runs beside an app: `App(scheduler=True)`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final

from ottla.app.background.background_task import BackgroundTask
from ottla.config import security_of
from ottla.telemetry import Hooks, log_event

_MODULE: Final = "ottla.sync.serve.scheduler"
_CLOSE_S: Final = 30.0


_AS_MEMBER: Final = ("heartbeat.interval.ms", "session.timeout.ms")


class AppScheduler(BackgroundTask):
    """A scheduler of the schedule `name`; `open` raises the errors of `Scheduler.start`. It takes the app's security
    settings and session timeout."""

    def __init__(
        self, name: str, bootstrap_servers: Any, settings: Mapping[str, Any], hooks: Hooks | None = None
    ) -> None:
        super().__init__(f"scheduler of {name!r}", close_s=_CLOSE_S)
        self.schedule = name
        self.bootstrap_servers = bootstrap_servers
        as_member = {setting: settings[setting] for setting in _AS_MEMBER if setting in settings}
        self._settings = {**security_of(settings), **as_member}
        self._hooks = hooks

    def _made(self) -> Any:
        make = importlib.import_module(_MODULE).Scheduler
        return make(self.bootstrap_servers, name=self.schedule, settings=self._settings, hooks=self._hooks)

    def _begin(self, work: Any) -> None:
        work.start()

    def _log_failure(self, error: str) -> None:
        log_event("scheduler_failed", "error", {"schedule": self.schedule, "error": error})
