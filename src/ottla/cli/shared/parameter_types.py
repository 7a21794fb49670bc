"""Types of options beyond Click's: durations, times, and numbers that are numbers (Click's own let `nan` through)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from ottla.amounts import TIMES, parse_duration_ms, parse_time_ms

F = TypeVar("F", bound=Callable[..., Any])

_MOST_SECONDS: Final = 2_000_000
"""Kafka's requests have their timeouts in 31 bits of milliseconds."""


def timeout_option(name: str, default_s: float, text: str) -> Callable[[F], F]:
    """Return the option `--timeout`, which the command gets as `name`; `text` is its help."""
    return click.option(
        "--timeout",
        name,
        type=Seconds(0, min_open=True),
        default=default_s,
        show_default=True,
        metavar="SECONDS",
        help=text,
    )


class Number(click.FloatRange):
    """A number within its bounds; neither `nan` nor `inf`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"found {value!r}, wanted a number", param, ctx)
        return found


class Seconds(Number):
    """A duration in seconds: `1.5`, or with its unit, as `90s` and `15m`."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        duration_ms = parse_duration_ms(value) if isinstance(value, str) else None
        seconds = super().convert(value if duration_ms is None else duration_ms / 1000, param, ctx)
        if seconds > _MOST_SECONDS:
            self.fail(f"found {value!r}, wanted at most {_MOST_SECONDS} seconds", param, ctx)
        return seconds


class Milliseconds(click.IntRange):
    """A duration in milliseconds: `1500`, or with its unit, as `1.5s`."""

    name = "milliseconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        duration_ms = parse_duration_ms(value) if isinstance(value, str) else None
        found: int = super().convert(value if duration_ms is None else duration_ms, param, ctx)
        return found


class TimeMs(click.types.IntParamType):
    """A time in milliseconds since the epoch: `now`, `-2h`, ISO 8601 in UTC."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = parse_time_ms(value, now_ms=time.time_ns() // 1_000_000)
        if found is None:
            self.fail(f"found {value!r}, wanted {TIMES}", param, ctx)
        return found
