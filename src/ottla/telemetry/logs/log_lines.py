"""Events as lines on stderr: JSON, or text for people where stderr is a terminal. stdout belongs to the service."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, Final, Literal, TextIO, cast

Format = Literal["auto", "json", "text"]

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}

_for_people: Any = None


def write_line(event: str, level: str, fields: Mapping[str, object], format: Format) -> None:
    """Write one event to stderr. Raises what writing raises."""
    if format == "text" or (format == "auto" and sys.stderr.isatty()):
        getattr(_text_logger(), level)(event, **fields)
        return
    sys.stderr.write(_json_line(event, level, fields))
    sys.stderr.flush()


def level_named(number: int) -> str:
    """Return the name of the level of `logging` that has this number, or is the next below it."""
    return next((name for name, least in reversed(LEVELS.items()) if number >= least), "debug")


def _json_line(event: str, level: str, fields: Mapping[str, object]) -> str:
    """Return one line of ASCII: whatever the fields contain, it is one line and stderr can encode it."""
    contextvars: Any = sys.modules.get("structlog.contextvars")
    find = getattr(contextvars, "get_contextvars", dict)
    line = {"timestamp": _utc_now(), "level": level, "event": event, **find(), **fields}
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
