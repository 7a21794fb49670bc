"""Numbers in declarations: durations, counts and shares, checked where they are declared.

NaN is neither too small nor too large, so a plain comparison lets it through; so are True, which is 1, and numbers that
no timer and no counter takes. What comes out of here can be calculated with.
"""

from __future__ import annotations

import math
import operator
from datetime import timedelta
from typing import Any, Final, TypeAlias, TypeGuard

from ottla.errors import ConfigError
from ottla.showing import shown

Span: TypeAlias = float | timedelta
"""Seconds, or a `timedelta`."""

MOST_S: Final = 1_000_000_000
"""The longest duration, some thirty years: timers, lock timeouts and timestamps can hold it."""

MOST_COUNT: Final = 2_147_483_647
"""The largest count, Kafka's int32."""


def seconds(
    place: str, name: str, value: object, *, least: float = 0.0, above: float | None = None, most: float = MOST_S
) -> float:
    """Return a span in seconds. Raises `ConfigError` unless it is a number or a timedelta between the bounds."""
    span = value.total_seconds() if isinstance(value, timedelta) else value
    if not _is_number(span) or not math.isfinite(span):
        wanted = "" if above is None else f"more than {above:g}: "
        raise ConfigError(f"{place}: {name} must be {wanted}a number of seconds or a timedelta, got {shown(value)}")
    if above is not None and span <= above:
        raise ConfigError(f"{place}: {name} must be more than {above:g} seconds, got {shown(value)}")
    if span < least:
        wanted = "not be negative" if least == 0 else f"be at least {least:g} second{'' if least == 1 else 's'}"
        raise ConfigError(f"{place}: {name} must {wanted}, got {shown(value)}")
    if span > most:
        raise ConfigError(f"{place}: {name} must be at most {most:,} seconds, got {shown(value)}")
    return span


def optional_seconds(place: str, name: str, value: object) -> float | None:
    """Return the same of a span that need not be given."""
    return None if value is None else seconds(place, name, value)


def timeout(place: str, value: object) -> float:
    """Return a call's timeout in seconds. Infinity becomes the longest timer, a negative one 0. Raises `ConfigError`
    for anything else.
    """
    span = value.total_seconds() if isinstance(value, timedelta) else value
    if not _is_number(span) or math.isnan(span):
        raise ConfigError(f"{place}: timeout_s must be a number of seconds or a timedelta, got {shown(value)}")
    return max(0.0, min(span, MOST_S))


def seconds_of(span: Span) -> float:
    """Return the seconds of a span that was checked."""
    return span.total_seconds() if isinstance(span, timedelta) else span


def milliseconds_of(span: Span) -> int:
    """Return the same in whole milliseconds."""
    return round(seconds_of(span) * 1_000)


def check_kinds(place: str, **given: tuple[object, type[Any]]) -> None:
    """Raise `ConfigError` for an argument, given with its type, that is neither None nor of that type."""
    for name, (value, kind) in given.items():
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise ConfigError(f"{place}: {name} must be of type {kind.__name__}, got {shown(value)}")


def count(
    place: str, name: str, value: object, *, least: int = 1, most: int = MOST_COUNT, more: str = "", why: str = ""
) -> int:
    """Return a whole number. Raises `ConfigError` for another. `more` names other valid values, `why` the reason for
    `most`.
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # numpy's integers have it too
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise ConfigError(f"{place}: {name} must be of type int{more}, got {shown(value)}")
    if number < least:
        wanted = "not be negative" if least == 0 else f"be {least} or more"
        raise ConfigError(f"{place}: {name} must {wanted}{more}, got {shown(number)}")
    if number > most:
        raise ConfigError(f"{place}: {name} must be at most {most:,}{f': {why}' if why else ''}; got {shown(number)}")
    return number


def number(place: str, name: str, value: object, *, least: float = 0.0, most: float = MOST_COUNT) -> float:
    """Return a number that is neither a span nor a count, after checking it. Raises `ConfigError`."""
    if not _is_number(value) or not math.isfinite(value):
        raise ConfigError(f"{place}: {name} must be a finite number, got {shown(value)}")
    if value < least:
        wanted = "not be negative" if least == 0 else f"be {least:g} or more"
        raise ConfigError(f"{place}: {name} must {wanted}, got {shown(value)}")
    if value > most:
        raise ConfigError(f"{place}: {name} must be at most {most:,}, got {shown(value)}")
    return value


def _is_number(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) < 1 << 1_000  # a larger one is no float
