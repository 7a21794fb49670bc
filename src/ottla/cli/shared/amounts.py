"""Sizes, times and settings as people type and read them: `7d`, `1GiB`, `retention.ms=7d`."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from typing import Any, Final

from ottla.amounts import DURATIONS, SIZES, parse_duration_ms, parse_size
from ottla.errors import ConfigError, InputError

_NAMED_UNITS: Final = {".ms": 1, ".seconds": 1000, ".minutes": 60_000, ".hours": 3_600_000}
"""How settings of time are called by Kafka, and their unit in milliseconds."""
_NUMBER: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
_NAMED_SIZES: Final = (
    ".bytes",
    ".bytes.per.second",
    "_byte_rate",
    ".throttled.rate",
    "batch.size",
    "buffer.memory",
)
"""How settings and quotas of bytes are called by Kafka."""


def milliseconds(text: str) -> int:
    """The value of an option that is a duration, as `1.5h`, in milliseconds. A number alone is seconds."""
    found = parse_duration_ms(f"{text} s" if _NUMBER.fullmatch(text.strip()) else text)
    if found is None:
        raise InputError(f"found {text!r}, wanted a time as {DURATIONS}")
    return found


def bytes_of(option: str, text: str) -> int:
    """The value of an option that is a size, as `50MB` or `1GiB`, in bytes."""
    found = parse_size(text)
    if found is None:
        raise InputError(f"{option}: found {text!r}, wanted bytes as {SIZES}")
    return found


def setting_value(name: str, text: str) -> str:
    """The value of a setting as Kafka takes it: `7d` of a `.ms` is 604800000, `1GiB` of a `.bytes` 1073741824."""
    stripped = text.strip()
    if not (stripped[:1].isdigit() and stripped[-1:].isalpha()):
        return text
    unit_ms = next((size for ending, size in _NAMED_UNITS.items() if name.endswith(ending)), None)
    if unit_ms is not None:
        return _time(name, text, unit_ms)
    return _size(name, text) if name.endswith(_NAMED_SIZES) else text


def parse_settings(pairs: Iterable[str], *, example: str) -> dict[str, str]:
    """`NAME=VALUE` arguments as settings."""
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


def moment(at_ms: int | None) -> str | None:
    """Milliseconds since the epoch as ISO 8601 in UTC; the number itself where no calendar has such a year."""
    if at_ms is None:
        return None
    try:
        at = dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return str(at_ms)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1000:03d}Z"


def _time(name: str, text: str, unit_ms: int) -> str:
    found = parse_duration_ms(text)
    if found is None:
        raise ConfigError(f"{name}: found {text}, wanted a number, or a time as {DURATIONS}")
    whole, rest = divmod(found, unit_ms)
    if rest:
        raise ConfigError(f"{name}: found {text}, wanted whole {name.rpartition('.')[2]}")
    return str(whole)


def _size(name: str, text: str) -> str:
    found = parse_size(text)
    if found is None:
        raise ConfigError(f"{name}: found {text}, wanted a number, or a size as {SIZES}")
    return str(found)
