"""When a recurring task is due: against cronsim, against a clock read minute by minute, and around clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.schedule.tasks.due_times import CronTimes, Interval, InvalidTimes

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Havana",  # changes at midnight
    "America/Santiago",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Pacific/Apia",  # skipped 30 December 2011
    "Asia/Kolkata",
)
HALF_HOUR = "Australia/Lord_Howe"
"""Its clock is changed by half an hour. cronsim leaves out due times there."""

MINUTE_MS = 60_000


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000)


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0, tz: str = "UTC", *, fold: int = 0) -> int:
    return ms(datetime(year, month, day, hour, minute, tzinfo=ZoneInfo(tz), fold=fold))


def shown(due_ms: int | None, tz: str) -> str:
    assert due_ms is not None
    return datetime.fromtimestamp(due_ms / 1_000, ZoneInfo(tz)).strftime("%a %d %b %H:%M %z")


def due(expression: str, tz: str, from_ms: int, count: int) -> list[str]:
    times, found = CronTimes(expression, tz), []
    for _ in range(count):
        next_ms = times.after(from_ms)
        assert next_ms is not None
        assert next_ms > from_ms
        found.append(shown(next_ms, tz))
        from_ms = next_ms
    return found


@st.composite
def fields(draw: st.DrawFn, least: int, most: int) -> str:
    first = draw(st.integers(least, most))
    last = draw(st.integers(first, most))
    step = draw(st.integers(1, 7))
    if first == last:  # cronsim takes 5-5/2 for 5-59/2
        return str(first)
    return draw(st.sampled_from(["*", str(first), f"{first}-{last}", f"{first}-{last}/{step}", f"*/{step}"]))


@st.composite
def expressions(draw: st.DrawFn) -> str:
    parts = [draw(fields(0, 59)), draw(fields(0, 23)), draw(fields(1, 28)), draw(fields(1, 12)), draw(fields(0, 6))]
    return " ".join(parts)


@st.composite
def starts(draw: st.DrawFn) -> datetime:
    """Often within two days of a change of some clock."""
    day = draw(
        st.sampled_from(
            [(3, 30), (10, 26), (3, 9), (11, 2), (4, 6), (9, 6), (9, 7), (4, 25), (10, 31), (2, 23), (12, 30)]
        )
    )
    year = draw(st.sampled_from([2011, 2024, 2025]))
    return datetime(year, *day, tzinfo=UTC) + timedelta(minutes=draw(st.integers(-2_880, 2_880)))


@pytest.mark.complete
@given(expression=expressions(), zone=st.sampled_from(ZONES), start=starts())
@example("30 2 * * *", "Europe/Berlin", datetime(2025, 10, 26, 1, 10, tzinfo=UTC))  # the hour is shown again
def test_due_times_are_those_of_cronsim(expression: str, zone: str, start: datetime) -> None:
    times, oracle = CronTimes(expression, zone), CronSim(expression, start.astimezone(ZoneInfo(zone)))
    at_ms = ms(start)
    for _ in range(40):
        wanted_ms = at_ms
        while wanted_ms <= at_ms:  # it begins in the first of two hours that are shown alike
            wanted_ms = ms(next(oracle))
        assert shown(times.after(at_ms), zone) == shown(wanted_ms, zone)
        at_ms = wanted_ms


def due_by_reading_the_clock(expression: str, zone: str, from_ms: int, until_ms: int) -> list[int]:
    """The rules of the module, minute by minute."""
    tz, minute, hour = ZoneInfo(zone), *expression.split()[:2]
    matching = {(each.hour, each.minute) for each in _a_day_of(f"{minute} {hour} * * *")}
    is_fixed = not minute.startswith("*") and not hour.startswith("*")
    found, seen = [], set()
    before = datetime.fromtimestamp(from_ms / 1_000 - 2 * 86_400, UTC).astimezone(tz).replace(tzinfo=None)
    for at_ms in range(from_ms - 2 * 86_400_000 + MINUTE_MS, until_ms + 1, MINUTE_MS):
        clock = datetime.fromtimestamp(at_ms / 1_000, UTC).astimezone(tz).replace(tzinfo=None)
        skipped = [before + timedelta(minutes=n) for n in range(1, (clock - before) // timedelta(minutes=1))]
        times = [*skipped, clock] if is_fixed else [clock]
        new = [each for each in times if (each.hour, each.minute) in matching and not (is_fixed and each in seen)]
        seen.update(new)
        if new and from_ms < at_ms:
            found.append(at_ms)
        before = clock
    return found


def _a_day_of(expression: str) -> list[datetime]:
    it = CronSim(expression, datetime(2024, 12, 31, 23, 59))  # a clock without changes
    found = [next(it)]
    while found[-1].day == 1 and found[-1].year == 2025 and found[-1].month == 1:
        found.append(next(it))
    return found[:-1]


@pytest.mark.complete
@given(
    minute=fields(0, 59), hour=fields(0, 23), zone=st.sampled_from([*ZONES, HALF_HOUR]), start=starts(),
)  # fmt: skip
@example(minute="0", hour="*/3", zone=HALF_HOUR, start=datetime(2025, 4, 5, 15, tzinfo=UTC))
def test_due_times_are_what_the_clock_shows(minute: str, hour: str, zone: str, start: datetime) -> None:
    expression, from_ms = f"{minute} {hour} * * *", ms(start)
    until_ms = from_ms + 2 * 86_400_000
    times, found = CronTimes(expression, zone), []
    next_ms = times.after(from_ms)
    while next_ms is not None and next_ms <= until_ms:
        found.append(next_ms)
        next_ms = times.after(next_ms)
    assert found == due_by_reading_the_clock(expression, zone, from_ms, until_ms)


def test_working_days_at_eight() -> None:
    assert due("0 8 * * mon-fri", "Europe/Berlin", at(2026, 3, 26, 12), 3) == [
        "Fri 27 Mar 08:00 +0100",
        "Mon 30 Mar 08:00 +0200",
        "Tue 31 Mar 08:00 +0200",
    ]


def test_a_fixed_time_in_a_skipped_hour_is_due_at_its_end() -> None:
    assert due("30 2 * * *", "Europe/Berlin", at(2026, 3, 28, 0), 3) == [
        "Sat 28 Mar 02:30 +0100",
        "Sun 29 Mar 03:00 +0200",
        "Mon 30 Mar 02:30 +0200",
    ]
    assert due("15,45 2 * * *", "Europe/Berlin", at(2026, 3, 28, 12), 2) == [
        "Sun 29 Mar 03:00 +0200",
        "Mon 30 Mar 02:15 +0200",
    ]


def test_a_fixed_time_in_a_doubled_hour_is_due_once() -> None:
    assert due("30 2 * * *", "Europe/Berlin", at(2026, 10, 24, 12), 2) == [
        "Sun 25 Oct 02:30 +0200",
        "Mon 26 Oct 02:30 +0100",
    ]
    second_time = at(2026, 10, 25, 2, 10, "Europe/Berlin", fold=1)
    assert due("30 2 * * *", "Europe/Berlin", second_time, 1) == ["Mon 26 Oct 02:30 +0100"]


def test_what_is_due_every_few_minutes_follows_the_clock() -> None:
    assert due("*/30 * * * *", "Europe/Berlin", at(2026, 3, 29, 1, 0, "Europe/Berlin"), 3) == [
        "Sun 29 Mar 01:30 +0100",
        "Sun 29 Mar 03:00 +0200",
        "Sun 29 Mar 03:30 +0200",
    ]
    assert due("*/30 * * * *", "Europe/Berlin", at(2026, 10, 25, 2, 0, "Europe/Berlin"), 4) == [
        "Sun 25 Oct 02:30 +0200",
        "Sun 25 Oct 02:00 +0100",
        "Sun 25 Oct 02:30 +0100",
        "Sun 25 Oct 03:00 +0100",
    ]


def test_a_day_matches_both_fields_or_either_as_in_debian() -> None:
    assert due("0 0 13 * fri", "UTC", at(2026, 2, 1), 3) == [
        "Fri 06 Feb 00:00 +0000",
        "Fri 13 Feb 00:00 +0000",
        "Fri 20 Feb 00:00 +0000",
    ]
    assert due("0 0 */12 * fri", "UTC", at(2026, 2, 1), 1) == ["Fri 13 Feb 00:00 +0000"]
    assert due("0 0 * * 7", "UTC", at(2026, 2, 1), 1) == due("0 0 * * SUN", "UTC", at(2026, 2, 1), 1)


def test_a_rare_day_is_found() -> None:
    assert datetime.fromtimestamp((CronTimes("0 0 29 2 *", "UTC").after(at(2026, 1, 1)) or 0) / 1_000, UTC).year == 2028
    assert CronTimes("0 0 1 1 *", "UTC").after(at(9_900, 6, 1)) is None


@given(
    expression=st.sampled_from(["* * * * *", "*/7 * * * *", "0 8 * * mon-fri", "30 2 * * *", "0 0 29 2 *"]),
    steps=st.integers(0, 60),
    more_ms=st.integers(0, 90 * 86_400_000),
)
def test_the_latest_due_time_is_found_without_the_steps_between(expression: str, steps: int, more_ms: int) -> None:
    times = CronTimes(expression, "Europe/Berlin")
    first_ms = times.after(at(2024, 2, 28))
    assert first_ms is not None
    until_ms = first_ms + (more_ms if steps == 0 else steps * MINUTE_MS)
    latest_ms = times.latest(first_ms, until_ms)
    assert first_ms <= latest_ms <= until_ms
    following_ms = times.after(latest_ms)
    assert following_ms is not None
    assert following_ms > until_ms


def test_an_interval_is_due_at_its_multiples() -> None:
    times = Interval(90_000)
    assert [times.after(at_ms) for at_ms in (0, 89_999, 90_000)] == [90_000, 90_000, 180_000]
    assert times.latest(90_000, 1_000_000) == 990_000
    assert times.latest(90_000, 90_000) == 90_000


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("0 8 * *", "wanted five fields"),
        ("0 0 8 * * *", "wanted five fields"),
        ("60 * * * *", "minute: found '60', wanted 0 to 59"),
        ("* 24 * * *", "hour: found '24', wanted 0 to 23"),
        ("* * 0 * *", "day of month: found '0', wanted 1 to 31"),
        ("* * * noon *", "month: found 'noon', wanted 1 to 12, or jan to dec"),
        ("* * * * 8", "day of week: found '8', wanted 0 to 7, or sun to sat"),
        ("* * * * fri-mon", "wanted the smaller value first"),
        ("5/15 * * * *", "wanted a step of a range: '5-59/15'"),
        ("*/0 * * * *", "minute: found '0', wanted 1 to 59"),
        ("1,,2 * * * *", "minute: found ''"),
        ("٣ * * * *", "minute: found '٣'"),
        ("0 0 31 2 *", "matches no day of any year"),
        ("0 0 L * *", "day of month: found 'l'"),
        ("1," * 200 + "2 * * * *", "wanted five fields"),
    ],
)
def test_an_expression_that_means_nothing_is_refused(expression: str, found: str) -> None:
    with pytest.raises(InvalidTimes) as caught:
        CronTimes(expression, "UTC")
    assert found in str(caught.value)


@pytest.mark.parametrize("zone", ["Europe/Bielefeld", "", "../../etc/passwd", "x" * 1_000, "\0"])
def test_a_time_zone_that_is_not_there_is_refused(zone: str) -> None:
    with pytest.raises(InvalidTimes, match="wanted the name of a time zone"):
        CronTimes("* * * * *", zone)


@pytest.mark.parametrize("every_ms", [0, 999, 366 * 86_400_000 + 1])
def test_an_interval_that_is_too_short_or_too_long_is_refused(every_ms: int) -> None:
    with pytest.raises(InvalidTimes, match="wanted 1 s to 366 days"):
        Interval(every_ms)


def test_due_times_of_a_year_are_in_order_without_doubles() -> None:
    found = []
    times, at_ms = CronTimes("*/20 * * * *", "Europe/Berlin"), at(2026, 1, 1)
    while at_ms < at(2027, 1, 1):
        next_ms = times.after(at_ms)
        assert next_ms is not None
        found.append(at_ms := next_ms)
    assert all(earlier < later for earlier, later in pairwise(found))
    assert len(found) == 365 * 72
