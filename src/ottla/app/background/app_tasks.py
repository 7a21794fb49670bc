"""The recurring tasks of an app: declared to their schedules when the app starts."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Mapping
from typing import Any, Final

from ottla.app.background.background_task import AppSettings, in_thread
from ottla.config import security_of
from ottla.schedule.tasks.task_records import Definition

_MODULE: Final = "ottla.sync.serve.task_registration"


class AppTasks:
    """Tasks by schedule."""

    def __init__(self, owner: AppSettings) -> None:
        self._owner = owner
        self.by_schedule: dict[str, list[Definition]] = {}

    def add(self, schedule: str, definition: Definition) -> None:
        """Add a task of a schedule."""
        self.by_schedule.setdefault(schedule, []).append(definition)

    @property
    def definitions(self) -> list[Definition]:
        """Return all tasks."""
        return [each for declared in self.by_schedule.values() for each in declared]

    def register(self) -> Awaitable[None] | None:
        """Write the definitions to their schedules. Raises what the app shall not start with."""
        return in_thread(self._register)

    def _register(self) -> None:
        settings: Mapping[str, Any] = security_of(self._owner.settings)
        register = importlib.import_module(_MODULE).register_tasks
        for schedule, definitions in self.by_schedule.items():
            register(self._owner.bootstrap_servers, schedule, definitions, settings=settings)
