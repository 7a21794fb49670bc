"""Where events go: the application's structlog if it configured one, else stderr.

On stderr each event is one line of JSON, or a line for people where stderr is a terminal. stdout belongs to the
service. structlog is imported with the first event: a program that only declares an app does not pay for it.
`configure_logging` sends the standard library's `logging` the same way.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import Any, Final, Literal, TextIO, cast

from ottla.telemetry.trace_ids import trace_ids

Format = Literal["auto", "json", "text"]

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}

_least: int = LEVELS["info"]
_format: Format = "auto"
_configured: Any = None
_for_people: Any = None
_handling = threading.local()


def write(event: str, level: str, fields: Mapping[str, object]) -> None:
    """Write one event. Raises what writing raises."""
    global _configured
    import structlog

    if structlog.is_configured():  # asked each time: a service may configure logging after its first event
        if _configured is None:
            _configured = structlog.get_logger("ottla")
        getattr(_configured, level)(event, **fields)
    elif LEVELS[level] < _least:
        return
    elif _format == "text" or (_format == "auto" and sys.stderr.isatty()):
        getattr(_text_logger(), level)(event, **fields)
    else:
        sys.stderr.write(_json_line(event, level, fields))
        sys.stderr.flush()


def configure_logging(*, level: str = "info", format: Format = "auto", libraries_level: str = "warning") -> None:
    """Send the standard library's `logging` where Ottla's own events go, as JSON lines or as text.

    `level` is the least level of Ottla's events where structlog is not configured. `libraries_level` is that of the
    loggers of `logging` which have no level of their own. `format` is ``json``, ``text``, or ``auto``: text on a
    terminal, else JSON. To call it again changes the choice. Handlers that the root logger has stay. Raises ValueError
    for another level or format.
    """
    global _least, _format
    for name in (level, libraries_level):
        if name not in LEVELS:
            raise ValueError(f"log level: found {name!r}, wanted one of {', '.join(LEVELS)}")
    if format not in ("auto", "json", "text"):
        raise ValueError(f"log format: found {format!r}, wanted 'auto', 'json' or 'text'")
    _least, _format = LEVELS[level], format
    root = logging.getLogger()
    if not any(isinstance(handler, StandardLogging) for handler in root.handlers):
        root.addHandler(StandardLogging())
    root.setLevel(LEVELS[libraries_level])


class StandardLogging(logging.Handler):
    """Passes records of the standard library's `logging` on as events: their message is the event, `logger` its place.

    `extra` is not taken over: libraries put objects there that show what they hold.
    """

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(_handling, "is_busy", False) or _structlog_writes_to_logging():
            return
        _handling.is_busy = True
        try:
            fields: dict[str, object] = {"logger": record.name, **trace_ids()}
            if record.exc_info and record.exc_info[1] is not None:
                fields["exception"] = "".join(traceback.format_exception(record.exc_info[1])).rstrip()
            write(record.getMessage(), _level_named(record.levelno), fields)
        except Exception:
            self.handleError(record)
        finally:
            _handling.is_busy = False


def _structlog_writes_to_logging() -> bool:
    """`logging` is where everything goes already, and what is there came from structlog."""
    import structlog

    return structlog.is_configured() and isinstance(
        structlog.get_config()["logger_factory"], structlog.stdlib.LoggerFactory
    )


def _level_named(number: int) -> str:
    return next((name for name, least in reversed(LEVELS.items()) if number >= least), "debug")


def _json_line(event: str, level: str, fields: Mapping[str, object]) -> str:
    """One line, in ASCII: whatever is in the fields, no byte of it breaks the line or the encoding of stderr."""
    import structlog

    line = {
        "timestamp": _utc_now(),
        "level": level,
        "event": event,
        **structlog.contextvars.get_contextvars(),
        **fields,
    }
    return json.dumps(line, default=repr) + "\n"


def _utc_now() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text_logger() -> Any:
    global _for_people
    if _for_people is None:
        import structlog

        _for_people = structlog.wrap_logger(structlog.PrintLogger(cast(TextIO, _Stderr())))
    return _for_people


class _Stderr:
    """`sys.stderr` as it is at the time of the line: test runners replace it."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()
