"""Whether a scheduler is ready: it reads and writes its slots, and delivers what is due."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.consumer.readiness.health import Health
from ottla.records import TopicPartition

LATE_MS: Final = 10_000
"""A message this long behind its due time is late. A scheduler that keeps up is late by a tick and a transaction."""

FAILING_MS: Final = 10_000
"""A slot that could not be read or written for so long. A leader that moves takes less."""

SILENT_MS: Final = 60_000
"""A scheduler whose thread has not come back for so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerStanding:
    """How a scheduler stood at `at_ms`, by its monotonic clock.

    `due_ms`: slot to the due time of the next message that waits in it, of those that can be delivered. `failing`: slot
    to (since when, why) it cannot be read or written. `unsafe`: why its topic may lose messages, if it may. The
    recurring tasks are a slot too, in their own topic. `undispatched`: a recurring task to why its runs are not
    dispatched.
    """

    topic: str
    due_ms: Mapping[TopicPartition, int]
    failing: Mapping[TopicPartition, tuple[int, str]]
    undispatched: Mapping[str, str] = field(default_factory=dict)
    at_ms: int
    unsafe: str | None = None

    def oldest_due_s(self, now_ms: int) -> float:
        """Return since when the oldest message is due; 0 when none is."""
        return max(0, now_ms - min(self.due_ms.values(), default=now_ms)) / 1_000

    def health(self, *, now_ms: int, monotonic_ms: int) -> Health:
        """Return the health: not ready if a slot is late or fails, the topic may lose messages, or the scheduler is
        silent."""
        problems = [] if self.unsafe is None else [self.unsafe]
        problems += [
            f"{slot} cannot be read or written since {(monotonic_ms - since_ms) // 1_000} s: {error}"
            for slot, (since_ms, error) in sorted(self.failing.items())
            if monotonic_ms - since_ms >= FAILING_MS
        ]
        problems += [
            f"{slot} is late: a message was due {(now_ms - due_ms) // 1_000} s ago"
            for slot, due_ms in sorted(self.due_ms.items())
            if now_ms - due_ms >= LATE_MS
        ]
        problems += [f"task {id} is not dispatched: {why}" for id, why in sorted(self.undispatched.items())]
        if monotonic_ms - self.at_ms >= SILENT_MS:
            problems.append(f"{self.topic}: the scheduler has not looked for {(monotonic_ms - self.at_ms) // 1_000} s")
        return Health(is_alive=True, is_ready=not problems, problems=tuple(problems))
