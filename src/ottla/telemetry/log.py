"""Structured events: one name and its fields. What the application does with structlog's configuration is its own.

Where nothing is configured they go to stderr: stdout belongs to the service. structlog is imported with the first
event: a program that only declares an app does not pay for it.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from typing import Any, TextIO, cast

_configured: Any = None
_plain: Any = None


def log_event(event: str, level: str, fields: Mapping[str, object]) -> None:
    """Log one event at `level` (``debug``, ``info``, ``warning``, ``error``).

    An error under `exc_info` becomes its traceback as text, under `exception`, which renderers print as it is. Left to
    them it would be printed with local variables where rich is installed, and so with records' values.
    """
    global _configured, _plain
    import structlog

    error = fields.get("exc_info")
    if isinstance(error, BaseException):
        fields = {name: value for name, value in fields.items() if name != "exc_info"}
        fields["exception"] = "".join(traceback.format_exception(error)).rstrip()

    if _configured is None:
        _configured = structlog.get_logger("ottla")
        _plain = structlog.wrap_logger(structlog.PrintLogger(cast(TextIO, _Stderr())))
    # Asked each time: a service may configure logging after its first event.
    getattr(_configured if structlog.is_configured() else _plain, level)(event, **fields)


class _Stderr:
    """`sys.stderr` as it is at the time of the line: test runners replace it."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


class RateLimit:
    """Lets one event per key through in each interval, and counts those it holds back.

    A client whose broker is away reports it dozens of times a second; once in a while tells the same.
    """

    __slots__ = ("_every_ms", "_held_back", "_next_ms")

    def __init__(self, *, every_ms: int) -> None:
        self._every_ms = every_ms
        self._next_ms: dict[str, int] = {}
        self._held_back: dict[str, int] = {}

    def admit(self, key: str, now_ms: int) -> int | None:
        """None when the event is held back, else how many were since the last one that was let through."""
        if now_ms < self._next_ms.get(key, now_ms):
            self._held_back[key] = self._held_back.get(key, 0) + 1
            return None
        self._next_ms[key] = now_ms + self._every_ms
        return self._held_back.pop(key, 0)
