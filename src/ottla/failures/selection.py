"""Selects dead letters by kind, origin, error, group or time. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.failures.foreign import DeadLetterView


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """A filter of dead letters: every given criterion must match. A criterion does not match a dead letter that lacks
    the header for it."""

    kind: str | None = None
    """`malformed`, `invalid`, `failed` or `expired`."""
    origin_topic: str | None = None
    """The topic that the record came from."""
    error: str | None = None
    """A part of the error's type or message, in any case."""
    ignores_messages: bool = False
    """Filter by error type only: a message may quote data that the user who filters may not read."""
    group: str | None = None
    """The consumer group whose dead letter it is."""
    since_ms: int | None = None
    """Dead-lettered at or after this moment, epoch milliseconds."""

    def matches(self, view: DeadLetterView) -> bool:
        """Return whether this dead letter is selected."""
        if self.kind is not None and view.kind != self.kind:
            return False
        if self.origin_topic is not None and view.topic != self.origin_topic:
            return False
        if self.group is not None and view.group != self.group:
            return False
        if self.since_ms is not None and (view.dead_lettered_ms is None or view.dead_lettered_ms < self.since_ms):
            return False
        message = "" if self.ignores_messages else view.message
        text = f"{view.error_type or ''} {message or ''}".lower()
        return self.error is None or self.error.lower() in text

    @property
    def label(self) -> str:
        """The criteria in one word, the same for the same criteria; empty without any."""
        given = {
            "kind": self.kind,
            "origin": self.origin_topic,
            "error": self.error,
            "group": self.group,
            "since": self.since_ms,
        }
        return ",".join(f"{name}={value}" for name, value in given.items() if value is not None)
