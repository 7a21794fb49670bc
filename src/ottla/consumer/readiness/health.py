"""Health as values, from which probes are answered.

*Alive* means that the process can do its work at all: a dead worker or poll loop makes it false, and only a restart
helps. *Ready* means that it makes progress: no partition is stopped, and no record that was handed out has been
unfinished for too long. A long backlog behind a slow handler is progress.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.quantities import Span, seconds
from ottla.records import TopicPartition

DEFAULT_UNREADY_AFTER_S = 60.0


def unready_after_ms(span: Span, place: str = "App") -> int:
    """Return the limit in milliseconds. Raises `ConfigError` unless it is positive."""
    return max(1, round(seconds(place, "unready_after_s", span, above=0) * 1_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHealth:
    """One assigned partition.

    `oldest_unfinished_age_ms` counts from when the oldest unfinished record was handed to the handler, or, while it
    waits for its turn, from when its handler finished anything. It is 0 when nothing is unfinished.
    `handler_running_ms` is how long a handler has been with one record, or one batch, by now. It is 0 if none runs,
    also while a record waits for its next attempt.
    """

    topic_partition: TopicPartition
    oldest_unfinished_age_ms: int
    oldest_unfinished_offset: int | None
    buffered_records: int
    stopped: str | None
    handler_running_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The health of one consumer; `problems` says why it is not ready or not alive."""

    is_alive: bool
    """False where only a start helps: a worker died, the loop that polls has ended, or the app does not run."""
    is_ready: bool
    """False while records are not handled as they should be; `problems` says why."""
    partitions: tuple[PartitionHealth, ...] = ()
    """The health of each assigned partition."""
    problems: tuple[str, ...] = ()
    limited: tuple[str, ...] = ()
    """Handlers that have records and wait for their `max_rate`. That is no problem."""
    blocked_ms: int = 0
    """How long the event loop has not answered, where something blocks it. The rest is not known then."""

    @classmethod
    def of_loop(cls, health: Health, *, loop: str, has_started: bool, error: BaseException | None) -> Health:
        """Return the health of a member whose poll or fetch loop does not run: not started yet, or dead."""
        if not has_started and error is None:
            problem = f"the {loop} loop has not started"
        else:
            problem = f"the {loop} loop " + ("is not running" if error is None else f"ended: {error}")
        return cls(
            is_alive=not has_started and error is None,
            is_ready=False,
            partitions=health.partitions,
            problems=(*health.problems, problem),
            limited=health.limited,
        )

    @classmethod
    def all_of(cls, parts: list[Health]) -> Health:
        """Return one health for a process with several consumers."""
        return cls(
            is_alive=all(part.is_alive for part in parts),
            is_ready=all(part.is_ready for part in parts),
            partitions=tuple(partition for part in parts for partition in part.partitions),
            problems=tuple(problem for part in parts for problem in part.problems),
            limited=tuple(handler for part in parts for handler in part.limited),
            blocked_ms=max((part.blocked_ms for part in parts), default=0),
        )
