"""Structured events: one name and its fields. Each has a row in `log_events`.

What repeats is limited for each group and partition, or topic. A log that cannot be written never ends what it tells
of.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from ottla.telemetry.logs.log_events import BURST, EVENTS, INTERVAL_MS
from ottla.telemetry.logs.log_sink import write
from ottla.telemetry.logs.rate_limit import RateLimit
from ottla.telemetry.logs.trace_ids import trace_ids

Check = Callable[[str, str, Mapping[str, object]], None]

_PLACE: Final = ("group", "partition", "topic", "callback")
"""Events that differ in one of these fields are limited each by itself."""

_check: Check | None = None
_lock = threading.Lock()
_repeated = RateLimit(every_ms=INTERVAL_MS, burst=BURST)


def check_events_with(check: Check | None) -> None:
    """Have each event checked, before it is limited or written: tests compare events with their table."""
    global _check
    _check = check


def forget_what_repeats() -> None:
    """Limit nothing because of what was logged so far."""
    global _repeated
    with _lock:
        _repeated = RateLimit(every_ms=INTERVAL_MS, burst=BURST)


def log_event(event: str, level: str, fields: Mapping[str, object]) -> None:
    """Log one event at `level` (``debug``, ``info``, ``warning``, ``error``).

    An error under `exc_info` is logged with its traceback.
    """
    if _check is not None:
        _check(event, level, fields)
    row = EVENTS.get(event)
    extra: dict[str, object] = {} if row is None or row.before is None else {"event_before": row.before}
    if row is not None and row.repeats:
        place = " ".join([event, *(str(fields[name]) for name in _PLACE if name in fields)])
        with _lock:
            held_back = _repeated.admit(place, time.monotonic_ns() // 1_000_000)
        if held_back is None:
            return
        if held_back:
            extra["held_back"] = held_back
    error = fields.get("exc_info")
    if isinstance(error, BaseException):
        fields = {name: value for name, value in fields.items() if name != "exc_info"}
    else:
        error = None
    try:
        write(event, level, {**trace_ids(), **fields, **extra}, error)
    except Exception:  # the application's own processor, handler or filter raised
        return


def _in_the_child() -> None:
    """Replace the lock: another thread of the parent may have held it at the fork, and is not there to release it."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_the_child)
