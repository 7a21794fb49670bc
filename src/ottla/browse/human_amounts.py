"""Sizes, times and settings as people type and read them: `7d`, `1GiB`, `retention.ms=7d`."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from typing import Any, Final

from ottla.amounts import DURATIONS, SIZES, is_size, parse_duration_ms, parse_setting, parse_size, unit_ms_of
from ottla.errors import ConfigError, InputError

_NUMBER: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")


def milliseconds(option: str, text: str) -> int:
    """Return the value of an option that is a duration, as `1.5h`, in milliseconds. A number alone is seconds."""
    found = parse_duration_ms(f"{text} s" if _NUMBER.fullmatch(text.strip()) else text)
    if found is None:
        raise InputError(f"{option}: found {text!r}, wanted a time as {DURATIONS}")
    return found


def bytes_of(option: str, text: str) -> int:
    """Return the value of an option that is a size, as `50MB` or `1GiB`, in bytes."""
    found = parse_size(text)
    if found is None:
        raise InputError(f"{option}: found {text!r}, wanted bytes as {SIZES}")
    return found


def setting_value(name: str, text: str) -> str:
    """Return the value of a setting as Kafka takes it. ConfigError for a unit that the setting does not have."""
    found = parse_setting(name, text)
    if found is not None:
        return str(found)
    stripped = text.strip()
    has_unit = stripped[:1].isdigit() and stripped[-1:].isalpha()
    if has_unit and unit_ms_of(name) is not None:
        kind = name.rpartition(".")[2]
        raise ConfigError(f"{name}: found {text}, wanted a number of {kind}, or whole {kind} as {DURATIONS}")
    if has_unit and is_size(name):
        raise ConfigError(f"{name}: found {text}, wanted a number, or a size as {SIZES}")
    return text


def parse_settings(pairs: Iterable[str], *, example: str) -> dict[str, str]:
    """Parse `NAME=VALUE` arguments as settings."""
    from ottla.config.pairs import parse_pairs

    parsed = parse_pairs(pairs, wanted="NAME=VALUE", example=example, option="settings")
    return {name: setting_value(name, value) for name, value in parsed.items()}


def bytes_text(count: Any) -> str:
    """`1.2 GiB`; nothing for None."""
    if count is None:
        return ""
    size = float(count)
    if abs(size) < 1024:
        return f"{size:,.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if abs(size) < 1024:
            return f"{size:,.1f} {unit}"
    return f"{size / 1024:,.1f} TiB"


def duration_text(milliseconds: float | None) -> str:
    """`31 h`; nothing for None."""
    from ottla.admin.doctor.finding import format_duration

    return "" if milliseconds is None else format_duration(milliseconds)


def moment(at_ms: int | None) -> str | None:
    """Return milliseconds since the epoch as ISO 8601 in UTC; the number itself where no calendar has such a year."""
    if at_ms is None:
        return None
    try:
        at = dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return str(at_ms)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1000:03d}Z"
