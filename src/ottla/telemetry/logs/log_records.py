"""Events as records of the standard library's `logging`: the event and its fields as text, and each as an attribute."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Final

from ottla.telemetry.logs.log_events import GROUPS
from ottla.telemetry.logs.log_lines import LEVELS

OTTLA: Final = logging.getLogger("ottla")
"""The parent of the loggers of all events. What has no row in the table of events is logged here."""

_RESERVED: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_PLAIN: Final = re.compile(r"[\w./:@+-]+", re.ASCII)
_FRAMES_OF_LOGGING: Final = 4
"""From the caller of `log_event` to where the record is made."""

_LOGGERS: Final = {
    row.name: logging.getLogger(f"ottla.{group.lower().replace(' ', '_')}")
    for group, rows in GROUPS.items()
    for row in rows
}


class Fields:
    """The fields of an event, which become text when a handler formats the record."""

    __slots__ = ("values",)

    def __init__(self, values: Mapping[str, object]) -> None:
        self.values = values

    def __str__(self) -> str:
        return " ".join(f"{name}={_text(value)}" for name, value in self.values.items())

    __repr__ = __str__


def logger_of(event: str) -> logging.Logger:
    """Return the logger of an event: `ottla.records`, `ottla.producers`, as the table groups them."""
    return _LOGGERS.get(event, OTTLA)


def record_of(
    event: str, level: str, fields: Mapping[str, object], error: BaseException | None, logger: logging.Logger
) -> logging.LogRecord:
    """Return the record of an event. Its message is the same for every event of a name until it is formatted, so that
    what groups records by their message (Sentry) groups them by event."""
    path, line, function, _ = logger.findCaller(stacklevel=_FRAMES_OF_LOGGING)
    extra = {f"{name}_" if name in _RESERVED else name: value for name, value in fields.items()}
    return logger.makeRecord(
        logger.name,
        LEVELS[level],
        path,
        line,
        f"{event} %s" if fields else event,
        (Fields(fields),) if fields else (),
        None if error is None else (type(error), error, error.__traceback__),
        function,
        {**extra, "event": event},
    )


def fields_of(record: logging.LogRecord) -> Mapping[str, object] | None:
    """Return the fields of a record that `record_of` made; None of any other record."""
    if not record.name.startswith("ottla") or not hasattr(record, "event"):
        return None
    arguments = record.args
    if isinstance(arguments, tuple) and len(arguments) == 1 and isinstance(arguments[0], Fields):
        return arguments[0].values
    return {} if record.msg == record.event else None


def _text(value: object) -> str:
    """Return a value in one word, or in quotes: no field breaks the line or passes for another field."""
    if isinstance(value, bool | int | float) or (isinstance(value, str) and _PLAIN.fullmatch(value)):
        return str(value)
    return json.dumps(value, default=repr)
