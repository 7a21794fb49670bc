"""Timestamps of records as text: ISO 8601 in UTC with milliseconds. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache

from ottla_wire.records import Row


def time_text(ms: int) -> str:
    """`2026-11-22T10:00:00.123Z`; the number where no calendar has it; empty for a record without a timestamp."""
    if ms == -1:
        return ""
    return f"{_second(ms // 1000)}.{ms % 1000:03d}Z" if -62_135_596_800_000 <= ms < 253_402_300_800_000 else str(ms)


def time_column(rows: Iterable[Row]) -> list[bytes]:
    """The time of each record."""
    return [time_text(row[1]).encode() for row in rows]


@lru_cache(maxsize=4_096)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
