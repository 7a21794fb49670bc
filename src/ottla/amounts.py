"""Times, durations and sizes as people type them: one grammar for all commands, options and calls. Pure.

| what     | forms                                                                                            |
|----------|--------------------------------------------------------------------------------------------------|
| duration | `500ms`, `90s`, `15m`, `1.5h`, `7d`, `2w`, `1h30m`, `10 seconds`                                 |
| size     | `1048576`, `50MB` (1000), `1.5GiB` (1024)                                                        |
| time     | `now`, `-2h` (a duration ago), ISO 8601: `2026-11-22`, `2026-11-22T10:00` (UTC), `...T10:00+01:00` |

The parsers return None for a text of another form; whoever calls them knows the place that its error has to name.
"""

from __future__ import annotations

import datetime as dt
import itertools
import re
from typing import Final

DURATIONS: Final = "90s, 15m, 1.5h or 7d"
SIZES: Final = "50MB or 1.5GiB"
TIMES: Final = "now, a time ago (-90s, -15m, -1.5h, -7d) or ISO 8601 (2026-11-22T10:00, UTC)"

_DURATION_MS: Final = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("w", "week", "weeks"), 604_800_000),
}
_SIZES: Final = {
    form: size
    for name, size in {
        "B": 1,
        "kB": 1000,
        "MB": 1000**2,
        "GB": 1000**3,
        "TB": 1000**4,
        "KiB": 1 << 10,
        "MiB": 1 << 20,
        "GiB": 1 << 30,
        "TiB": 1 << 40,
    }.items()
    for form in (name, name.lower(), name.upper())
}
"""Not `Mb`: that is a megabit."""

_UNITS_OF_SETTINGS: Final = {".ms": 1, ".seconds": 1000, ".minutes": 60_000, ".hours": 3_600_000}
"""How settings of time are called by Kafka, and their unit in milliseconds."""
_SIZES_OF_SETTINGS: Final = (
    ".bytes",
    ".bytes.per.second",
    "_byte_rate",
    ".throttled.rate",
    "batch.size",
    "buffer.memory",
)
"""How settings and quotas of bytes are called by Kafka."""

_NUMBER: Final = r"([0-9]{1,15}(?:\.[0-9]{1,9})?)"
_PART: Final = re.compile(rf"{_NUMBER} ?([A-Za-z]{{1,12}}) ?")
_SIZE: Final = re.compile(rf"{_NUMBER} ?([A-Za-z]{{1,3}})?")
_MOST_LETTERS: Final = 64
_MOST: Final = 2**63 - 1
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def parse_duration_ms(text: str) -> int | None:
    """Return the milliseconds of a duration with its unit, such as `1.5h`; each unit at most once. None for other
    text.
    """
    stripped = text.strip()
    if not stripped or len(stripped) > _MOST_LETTERS:
        return None
    total = 0
    sizes: list[int] = []
    at = 0
    while at < len(stripped):
        found = _PART.match(stripped, at)
        if found is None or found[2].lower() not in _DURATION_MS:
            return None
        sizes.append(_DURATION_MS[found[2].lower()])
        part = _times(found[1], sizes[-1])
        if part is None:
            return None
        total += part
        at = found.end()
    is_descending = all(before > after for before, after in itertools.pairwise(sizes))
    return total if is_descending and total <= _MOST else None


def parse_size(text: str) -> int | None:
    """Return the bytes of a number, or of a size with its unit, such as `1.5GiB`. None for other text."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or (found[2] is None and "." in found[1]):
        return None
    if found[2] is None:
        return int(found[1])
    return None if found[2] not in _SIZES else _times(found[1], _SIZES[found[2]])


def parse_time_ms(moment: str | dt.datetime, *, now_ms: int) -> int | None:
    """Return milliseconds since the epoch, negative before 1970. None for other text.

    A time without a zone is UTC: the same call must mean the same moment on every machine.
    """
    if isinstance(moment, dt.datetime):
        return datetime_ms(moment)
    text = moment.strip()
    if text == "now":
        return now_ms
    if text.startswith("-"):
        ago_ms = parse_duration_ms(text[1:])
        return None if ago_ms is None else now_ms - ago_ms
    if len(text) > _MOST_LETTERS or not text.isascii() or (text.isdigit() and len(text) > len("20261122")):
        return None  # milliseconds since the epoch would be taken for a day, with digits for a separator and a time
    try:
        return datetime_ms(dt.datetime.fromisoformat(text))
    except ValueError:
        return None


def parse_setting(name: str, text: str) -> int | None:
    """Return the number that Kafka takes for a setting: `7d` of a `.ms` is 604800000, `1GiB` of a `.bytes` 1073741824.
    None if the text has no unit, or one that the setting cannot express, as whole seconds for a `.seconds`."""
    stripped = text.strip()
    if not (stripped[:1].isdigit() and stripped[-1:].isalpha()):
        return None
    unit_ms = unit_ms_of(name)
    if unit_ms is None:
        return parse_size(stripped) if is_size(name) else None
    found = parse_duration_ms(stripped)
    return None if found is None or found % unit_ms else found // unit_ms


def unit_ms_of(name: str) -> int | None:
    """Return the unit of a time setting in milliseconds, by its name; None for other settings."""
    return next((size for ending, size in _UNITS_OF_SETTINGS.items() if name.endswith(ending)), None)


def is_size(name: str) -> bool:
    """Return whether a setting or quota counts bytes, by its name."""
    return name.endswith(_SIZES_OF_SETTINGS)


def datetime_ms(moment: dt.datetime) -> int:
    """Return whole milliseconds since the epoch. A datetime without a zone is UTC."""
    aware = moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment
    return (aware - _EPOCH) // dt.timedelta(milliseconds=1)


def _times(number: str, unit: int) -> int | None:
    """Return the rounded product; None above 64 bits, and if a positive amount would become 0."""
    digits, _, fraction = number.partition(".")
    whole, divisor = int(digits + fraction) * unit, 10 ** len(fraction)
    rounded = (2 * whole + divisor) // (2 * divisor)
    return None if rounded > _MOST or (whole and not rounded) else rounded
