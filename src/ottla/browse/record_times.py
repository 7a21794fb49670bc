"""Timestamps of records as text: ISO 8601 in UTC with milliseconds. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from ottla_wire.records import Row

_FIRST_MS: Final = -62_135_596_800_000
_END_MS: Final = 253_402_300_800_000
"""The years 1 to 9999, all that the calendar has."""


def time_text(ms: int) -> str:
    """`2026-11-22T10:00:00.123Z`; the number where no calendar has it; empty for a record without a timestamp."""
    if ms == -1:
        return ""
    return f"{_second(ms // 1000)}.{ms % 1000:03d}Z" if _FIRST_MS <= ms < _END_MS else str(ms)


def time_column(rows: Iterable[Row]) -> list[bytes]:
    """Return the time of each record. Neighbours share a second most of the time."""
    found: list[bytes] = []
    before = None
    second = b""
    for row in rows:
        ms = row[1]
        if not _FIRST_MS <= ms < _END_MS or ms == -1:
            found.append(time_text(ms).encode())
            continue
        seconds = ms // 1000
        if seconds != before:
            before, second = seconds, _second(seconds).encode()
        found.append(b"%b.%03dZ" % (second, ms - seconds * 1000))
    return found


@lru_cache(maxsize=4_096)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
