"""When a recurring task is due: by a cron expression in a time zone, or every so many milliseconds.

A cron expression has five fields: minute (0-59), hour (0-23), day of month (1-31), month (1-12 or jan-dec), day of week
(0-7 or sun-sat; 0 and 7 are Sunday). A field is ``*``, or a list of values and ranges (``1-5``), each of which may have
a step (``*/15``, ``8-18/2``). As in Debian's cron, a day must match both of its fields if one of them begins with
``*``, and either of them otherwise.

| the clock of the time zone | minute and hour are given | minute or hour begins with ``*`` |
|---|---|---|
| skips the time (it is set forward) | due when the skipped hour ends | not due: the clock never shows that time |
| shows the time twice (it is set back) | due once, at the first | due both times |

So a task of a certain time of day runs once a day, and one of every few minutes or hours runs whenever the clock shows
the time. These are the rules of Debian's cron.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, Protocol
from zoneinfo import ZoneInfo

MAX_CHARACTERS: Final = 200
"""Of an expression, and of the name of a time zone. Both come from records."""

MIN_INTERVAL_MS: Final = 1_000
MAX_INTERVAL_MS: Final = 366 * 86_400_000

_MOST_YEARS: Final = 40
"""A date and a weekday meet at least this often: 29 February is a Monday every 28 years, or 40 around 2100."""
_END_YEAR: Final = 9_900
_MONTHS: Final = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11,
    "dec": 12,
}  # fmt: skip
_WEEKDAYS: Final = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
_MINUTE: Final = timedelta(minutes=1)
_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class InvalidTimes(ValueError):
    """Correct the expression, the interval or the time zone: the message names what was found."""


class DueTimes(Protocol):
    """Moments in milliseconds since the epoch."""

    def after(self, at_ms: int) -> int | None:
        """Return the first due time that is later than `at_ms`; None if there is none."""

    def latest(self, from_ms: int, until_ms: int) -> int:
        """Return the last due time up to `until_ms`. `from_ms` is a due time, and not later."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Due at the multiples of an interval since 1970: the same moments for all processes, and after each restart."""

    every_ms: int

    def __post_init__(self) -> None:
        if not MIN_INTERVAL_MS <= self.every_ms <= MAX_INTERVAL_MS:
            raise InvalidTimes(f"found an interval of {self.every_ms / 1_000:g} s, wanted 1 s to 366 days")

    def after(self, at_ms: int) -> int | None:
        """Return the first due time that is later than `at_ms`."""
        return (at_ms // self.every_ms + 1) * self.every_ms

    def latest(self, from_ms: int, until_ms: int) -> int:
        """Return the last due time up to `until_ms`, at least `from_ms`."""
        return max(from_ms, until_ms // self.every_ms * self.every_ms)


@dataclass(frozen=True, slots=True)
class CronTimes:
    """Due when a cron expression matches the clock of a time zone. See the module for its fields and for clock
    changes."""

    expression: str
    tz: str
    _zone: ZoneInfo = field(init=False, repr=False, compare=False)
    _minutes: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _hours: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _days: frozenset[int] = field(init=False, repr=False, compare=False)
    _months: frozenset[int] = field(init=False, repr=False, compare=False)
    _weekdays: frozenset[int] = field(init=False, repr=False, compare=False)
    _needs_both: bool = field(init=False, repr=False, compare=False)
    """A day must match its date and its weekday."""
    _is_at_fixed_times: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        fields = self.expression.lower().split() if len(self.expression) <= MAX_CHARACTERS else []
        if len(fields) != 5:
            raise InvalidTimes(
                f"found {self.expression[:MAX_CHARACTERS]!r}, wanted five fields: minute, hour, day of month, month, "
                "day of week"
            )
        minute, hour, day, month, weekday = fields
        weekdays = _values("day of week", weekday, 0, 7, _WEEKDAYS)
        for name, value in (
            ("_zone", _zone(self.tz)),
            ("_minutes", tuple(sorted(_values("minute", minute, 0, 59)))),
            ("_hours", tuple(sorted(_values("hour", hour, 0, 23)))),
            ("_days", frozenset(_values("day of month", day, 1, 31))),
            ("_months", frozenset(_values("month", month, 1, 12, _MONTHS))),
            ("_weekdays", frozenset(value % 7 for value in weekdays)),
            ("_needs_both", day.startswith("*") or weekday.startswith("*")),
            ("_is_at_fixed_times", not minute.startswith("*") and not hour.startswith("*")),
        ):
            object.__setattr__(self, name, value)
        if next(self._shown_after(datetime(2000, 1, 1)), None) is None:
            raise InvalidTimes(f"found {self.expression!r}, which matches no day of any year")

    def after(self, at_ms: int) -> int | None:
        """Return the first due time that is later than `at_ms`; None after the year 9900."""
        at = _EPOCH + timedelta(milliseconds=at_ms)
        found = self._fixed_after(at) if self._is_at_fixed_times else self._shown_time_after(at)
        return None if found is None else (found - _EPOCH) // timedelta(milliseconds=1)

    def latest(self, from_ms: int, until_ms: int) -> int:
        """Return the last due time up to `until_ms`, at least `from_ms`: without the steps between, which may be
        half a million in a year."""
        back_ms = 60_000
        while until_ms - back_ms > from_ms:
            start_ms = self.after(until_ms - back_ms)
            if start_ms is not None and start_ms <= until_ms:
                break
            back_ms *= 2
        else:
            start_ms = from_ms
        latest_ms = start_ms
        while start_ms is not None and start_ms <= until_ms:
            latest_ms = start_ms
            start_ms = self.after(start_ms)
        return latest_ms

    def _fixed_after(self, at: datetime) -> datetime | None:
        """Return the next moment of a task at fixed times of the day."""
        for shown in self._shown_after(_shown(at, self._zone)):
            moment = self._moment_of(shown)
            if moment > at:  # else the clock was set back, and shows this for the second time
                return moment
        return None

    def _moment_of(self, shown: datetime) -> datetime:
        """Return when the clock shows this for the first time, or the end of the hour that it skips."""
        moment = shown.replace(tzinfo=self._zone).astimezone(UTC)
        while _shown(moment, self._zone) != shown:
            shown += _MINUTE
            moment = shown.replace(tzinfo=self._zone).astimezone(UTC)
        return moment

    def _shown_time_after(self, at: datetime) -> datetime | None:
        """Return the next moment at which the clock shows a matching time. Between two changes of the clock, time
        shown and time passed run alike."""
        start = at
        while True:
            offset = _offset(start, self._zone)
            # The change itself may be due, `at` is not.
            before = _shown(start, self._zone) - (_MINUTE if start is not at else timedelta(0))
            shown = next(self._shown_after(before), None)
            if shown is None:
                return None
            moment = (shown - offset).replace(tzinfo=UTC)
            change = _first_change(start, moment, self._zone)
            if change is None:
                return moment
            start = change

    def _shown_after(self, shown: datetime) -> Iterator[datetime]:
        """Yield the matching times of a clock that is never changed, later than `shown`."""
        day = shown.date()
        end = min(day.year + _MOST_YEARS, _END_YEAR)
        while day.year <= end:
            if day.month not in self._months:
                day = (day.replace(day=1) + timedelta(days=31)).replace(day=1)
                continue
            if self._is_on(day):
                for hour in self._hours:
                    if day == shown.date() and hour < shown.hour:
                        continue
                    for minute in self._minutes:
                        found = datetime(day.year, day.month, day.day, hour, minute)
                        if found > shown:
                            yield found
            day += _DAY

    def _is_on(self, day: date) -> bool:
        is_date, is_weekday = day.day in self._days, day.isoweekday() % 7 in self._weekdays
        return is_date and is_weekday if self._needs_both else is_date or is_weekday


def _shown(moment: datetime, zone: ZoneInfo) -> datetime:
    """Return what the clock shows, without a time zone."""
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def _offset(moment: datetime, zone: ZoneInfo) -> timedelta:
    offset = moment.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def _first_change(start: datetime, end: datetime, zone: ZoneInfo) -> datetime | None:
    """Return the first moment in (start, end] with another offset, to the second."""
    offset = _offset(start, zone)
    before = start
    while before < end:
        behind = min(before + _DAY, end)
        if _offset(behind, zone) != offset:
            while behind - before > _SECOND:
                middle = before + (behind - before) // 2
                before, behind = (middle, behind) if _offset(middle, zone) == offset else (before, middle)
            return behind.replace(microsecond=0)
        before = behind
    return None


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo:
    try:
        if len(name) <= MAX_CHARACTERS:
            return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        pass
    raise InvalidTimes(
        f"tz: found {name[:MAX_CHARACTERS]!r}, wanted the name of a time zone that this system has: 'Europe/Berlin'. "
        "Where it has none, `pip install tzdata` brings them"
    )


def _values(what: str, text: str, least: int, most: int, names: dict[str, int] | None = None) -> set[int]:
    """Return the values of a field."""
    found: set[int] = set()
    for term in text.split(","):
        values, has_step, step = term.partition("/")
        first, is_range, last = values.partition("-")
        if values == "*":
            start, end = least, 6 if most == 7 else most
        else:
            start = _value(what, first, least, most, names)
            end = _value(what, last, least, most, names) if is_range else start
        if has_step and not is_range and values != "*":
            raise InvalidTimes(f"{what}: found {term!r}, wanted a step of a range: '{first}-{most}/{step}'")
        width = _value(what, step, 1, most, None) if has_step else 1
        if end < start:
            raise InvalidTimes(f"{what}: found {term!r}, wanted the smaller value first")
        found.update(range(start, end + 1, width))
    return found


def _value(what: str, text: str, least: int, most: int, names: dict[str, int] | None) -> int:
    if names is not None and text in names:
        return names[text]
    value = int(text) if text.isascii() and text.isdigit() and len(text) <= 2 else -1
    if not least <= value <= most:
        wanted = f"{least} to {most}" + (f", or {next(iter(names))} to {list(names)[-1]}" if names else "")
        raise InvalidTimes(f"{what}: found {text!r}, wanted {wanted}")
    return value
