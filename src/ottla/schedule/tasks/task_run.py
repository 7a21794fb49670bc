"""`TaskRun`: the value of a recurring task's record."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """One run of a recurring task, for handlers that want to know which."""

    id: str
    """The task, as `group/id`."""
    due_ms: int
    """When it was due, in epoch milliseconds; for a triggered run, when it was triggered."""
    dispatched_ms: int
    """When a scheduler wrote its record."""
    is_triggered: bool = False
    """It was asked for by `ottla schedule trigger`."""

    @property
    def due(self) -> datetime:
        """Return when it was due, in UTC."""
        return datetime.fromtimestamp(self.due_ms / 1_000, UTC)
