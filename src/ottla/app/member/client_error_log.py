"""Logs the errors that a client reports, each at most once in a while."""

from __future__ import annotations

from ottla.clock import Clock
from ottla.telemetry import RateLimit, log_event

_EVERY_MS = 10_000


class ClientErrorLog:
    """The client's errors of one group member, each kind at most once in ten seconds."""

    def __init__(self, group: str, clock: Clock) -> None:
        self._group = group
        self._clock = clock
        self._limit = RateLimit(every_ms=_EVERY_MS)

    def note(self, code: str, error: str) -> None:
        """Remember the error without logging it."""
        self.write("info", code, error)

    def write(self, level: str, code: str, error: str) -> None:
        held_back = self._limit.admit(code, self._clock.monotonic_ms())
        if held_back is not None:
            fields = {"group": self._group, "code": code, "error": error, "held_back": held_back}
            log_event("client_error", level, fields)
