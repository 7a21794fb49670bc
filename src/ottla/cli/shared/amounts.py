"""Sizes, times and settings as people type and read them: `7d`, `1GiB`, `retention.ms=7d`."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from typing import Any, Final

from ottla.errors import ConfigError, InputError

_SIZES: Final = {
    "B": 1,
    "kB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
_TIMES_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_NAMED_UNITS: Final = {".ms": 1, ".seconds": 1000, ".minutes": 60_000, ".hours": 3_600_000}
"""How settings of time are called by Kafka, and their unit in milliseconds."""
_AMOUNT: Final = re.compile(r"(\d{1,15})([A-Za-z]+)")


def milliseconds(text: str) -> int:
    """`90s`, `15m`, `2h`, `7d` in milliseconds."""
    found = _AMOUNT.fullmatch(text.strip())
    if found is None or found[2] not in _TIMES_MS:
        raise InputError(f"found {text!r}, wanted a time as 90s, 15m, 2h or 7d")
    return int(found[1]) * _TIMES_MS[found[2]]


def bytes_of(option: str, text: str) -> int:
    """The value of an option that is a size, as `50MB` or `1GiB`, in bytes."""
    value = setting_value(f"{option}.bytes", text)
    if not value.isascii() or not value.isdigit() or len(value) > 18:
        raise InputError(f"{option}: found {text!r}, wanted bytes as 50MB or 1GiB")
    return int(value)


def setting_value(name: str, text: str) -> str:
    """The value of a setting as Kafka takes it: `7d` of a `.ms` is 604800000, `1GiB` of a `.bytes` 1073741824."""
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        return text
    unit_ms = next((size for ending, size in _NAMED_UNITS.items() if name.endswith(ending)), None)
    if unit_ms is not None:
        return _time(name, int(found[1]), found[2], unit_ms)
    if name.endswith(".bytes"):
        return _size(name, int(found[1]), found[2])
    return text


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


def _time(name: str, amount: int, unit: str, unit_ms: int) -> str:
    if unit not in _TIMES_MS:
        raise ConfigError(f"{name}: found {amount}{unit}, wanted a number, or a time in {', '.join(_TIMES_MS)}")
    whole, rest = divmod(amount * _TIMES_MS[unit], unit_ms)
    if rest:
        raise ConfigError(f"{name}: found {amount}{unit}, wanted whole {name.rpartition('.')[2]}")
    return str(whole)


def _size(name: str, amount: int, unit: str) -> str:
    if unit not in _SIZES:
        raise ConfigError(f"{name}: found {amount}{unit}, wanted a number, or a size in {', '.join(_SIZES)}")
    return str(amount * _SIZES[unit])
