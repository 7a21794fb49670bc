"""Where events go: the application's structlog if it configured one, else the standard library's `logging`.

There they are records of loggers below `ottla`, for the handlers and levels that the program has. One that configured
neither gets a line on stderr for each event. structlog is not imported for that: a program that uses it has done so.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import Any

from ottla.telemetry.logs.log_lines import LEVELS, Format, level_named, write_line
from ottla.telemetry.logs.log_records import OTTLA, fields_of, logger_of, record_of
from ottla.telemetry.logs.trace_ids import trace_ids

_format: Format = "auto"
_worker: dict[str, object] = {}
"""The number of this worker process, for lines on stderr, which several processes share."""
_is_chosen = False
"""Whether the program asked for lines on stderr, whatever else it has."""

_configured: Any = None
_handling = threading.local()


def write(event: str, level: str, fields: Mapping[str, object], error: BaseException | None = None) -> None:
    """Log one event. Raises what the program's structlog raises."""
    if getattr(_handling, "is_writing", False):
        return  # a handler that logs by Ottla (records to Kafka) would call itself
    _handling.is_writing = True
    try:
        configured = _configured_structlog()
        if configured is not None:
            getattr(configured, level)(event, **fields, **_exception(error))
            return
        logger = logger_of(event)
        if _is_wanted(logger, LEVELS[level]):
            _handle(record_of(event, level, fields, error, logger), logger)
    finally:
        _handling.is_writing = False


def configure_logging(*, level: str = "info", format: Format = "auto") -> None:
    """Write Ottla's events to stderr, as JSON lines or as text, from `level` on.

    For programs that configure neither `logging` nor structlog: the events reach the handlers of `logging` as well, and
    where structlog is configured only that. `format` is ``json``, ``text``, or ``auto``: text on a terminal, else JSON.
    `level` is set on the logger `ottla`. No other logger is changed, the root logger neither. To call it again changes
    the choice. Raises ValueError for another level or format.
    """
    global _is_chosen
    _choose(level, format)
    _is_chosen = True


def configure_program(*, level: str, format: Format, worker: int | None = None) -> None:
    """Configure logging for `ottla run`, whose process is Ottla's: records of all other loggers (from ``warning`` on,
    where they have no level of their own) are written the same way. A service that configures `logging` itself takes
    precedence. `worker` is this process's number among several, which each line has."""
    global _is_chosen, _worker
    _choose(level, format)
    _worker = {} if worker is None else {"worker": worker}
    _is_chosen = False
    root = logging.getLogger()
    if not any(isinstance(handler, StandardLogging) for handler in root.handlers):
        root.addHandler(StandardLogging())
    root.setLevel(logging.WARNING)


def _choose(level: str, format: Format) -> None:
    global _format
    if level not in LEVELS:
        raise ValueError(f"log level: found {level!r}, wanted one of {', '.join(LEVELS)}")
    if format not in ("auto", "json", "text"):
        raise ValueError(f"log format: found {format!r}, wanted 'auto', 'json' or 'text'")
    _format = format
    OTTLA.setLevel(LEVELS[level])


class _OnStderr(logging.Handler):
    """Writes events to stderr if that is configured, or no other handler takes them."""

    def emit(self, record: logging.LogRecord) -> None:
        if fields_of(record) is None:  # the program's own, of a logger below `ottla`: as if this handler were not here
            last = logging.lastResort
            if last is not None and record.levelno >= last.level and not _has_host(logging.getLogger(record.name)):
                last.handle(record)
        elif _is_chosen or not _has_host(logging.getLogger(record.name)):
            _emit(record)


class StandardLogging(logging.Handler):
    """Writes the records of all loggers as Ottla's events are written: their message is the event, `logger` its place.

    `extra` of others is not taken over: libraries put objects there that show what they hold.
    """

    def emit(self, record: logging.LogRecord) -> None:
        is_event = fields_of(record) is not None
        if (is_event and _is_chosen) or getattr(_handling, "is_busy", False) or _structlog_writes_to_logging():
            return
        _handling.is_busy = True
        try:
            _emit(record)
        finally:
            _handling.is_busy = False


def _emit(record: logging.LogRecord) -> None:
    fields = fields_of(record)
    if fields is None:
        event, fields = record.getMessage(), {"logger": record.name, **trace_ids()}
    else:
        event = str(record.__dict__["event"])
    error = record.exc_info[1] if record.exc_info else None
    fields, level = {**fields, **_exception(error)}, level_named(record.levelno)
    try:
        configured = _configured_structlog()
        if configured is not None:
            getattr(configured, level)(event, **fields)
        else:
            write_line(event, level, {**_worker, **fields}, _format)
    except Exception:  # stderr is closed, or its disk is full: to say so there would fail as well
        return


def _exception(error: BaseException | None) -> dict[str, object]:
    """Return the traceback as text, which renderers print as it is. Left to them it would be printed with local
    variables where rich is installed, and so with records' values."""
    return {} if error is None else {"exception": "".join(traceback.format_exception(error)).rstrip()}


def _is_wanted(logger: logging.Logger, level: int) -> bool:
    if logger.manager.disable >= level:
        return False
    if OTTLA.level or logger.level or logging.getLogger().level != logging.WARNING or _has_host(logger):
        return level >= logger.getEffectiveLevel()
    return level >= logging.INFO


def _handle(record: logging.LogRecord, logger: logging.Logger) -> None:
    """Handle as `logger.handle` does, also for a disabled logger: `dictConfig` disables every existing logger unless
    told otherwise, and dead letters would go unreported."""
    kept: object = logger.filter(record)  # since Python 3.12 it may be another record
    if kept:
        logger.callHandlers(kept if isinstance(kept, logging.LogRecord) else record)


def _has_host(logger: logging.Logger) -> bool:
    """Return whether the program has a handler for this logger's records. Handlers that pytest installs for each test
    are ignored."""
    place: logging.Logger | None = logger
    while place is not None:
        for handler in place.handlers:
            if handler is not _on_stderr and not type(handler).__module__.startswith("_pytest."):
                return True
        place = place.parent if place.propagate else None
    return False


def _configured_structlog() -> Any:
    """Return the program's structlog, if it configured it: asked each time, for it may do so after the first event."""
    global _configured
    structlog: Any = sys.modules.get("structlog")
    is_configured = getattr(structlog, "is_configured", None)  # absent while another thread imports it
    if is_configured is None or not is_configured():
        return None
    if _configured is None:
        _configured = structlog.get_logger("ottla")
    return _configured


def _structlog_writes_to_logging() -> bool:
    """Return whether structlog writes to `logging`, which then has every event already."""
    if _configured_structlog() is None:
        return False
    import structlog

    return isinstance(structlog.get_config()["logger_factory"], structlog.stdlib.LoggerFactory)


_on_stderr = _OnStderr()
OTTLA.addHandler(_on_stderr)
