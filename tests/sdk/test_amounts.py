"""Times, durations and sizes as people type them."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.amounts import datetime_ms, parse_duration_ms, parse_setting, parse_size, parse_time_ms

NOW_MS = 1_795_000_000_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("90s", 90_000),
        ("15m", 900_000),
        ("15min", 900_000),
        ("1.5h", 5_400_000),
        ("7d", 604_800_000),
        ("2w", 1_209_600_000),
        ("1h30m", 5_400_000),
        (" 1 hour 30 minutes ", 5_400_000),
        ("10 seconds", 10_000),
        ("0s", 0),
        ("1.3333h", 4_799_880),
        ("0.4ms", None),
        ("30m1h", None),
        ("1h1h", None),
        ("90", None),
        ("-90s", None),
        ("1.h", None),
        ("h", None),
        ("", None),
        ("7parsecs", None),
        ("٣h", None),
        ("999999999999999w", None),
        ("1e3s", None),
        ("nans", None),
    ],
)
def test_a_duration_is_numbers_with_units(text: str, ms: int | None) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1048576", 1_048_576),
        ("0", 0),
        ("50MB", 50_000_000),
        ("50mb", 50_000_000),
        ("1GiB", 1 << 30),
        ("1.5GiB", 3 << 29),
        ("1 KB", 1000),
        ("1kB", 1000),
        ("10B", 10),
        ("1Mb", None),
        ("1M", None),
        ("1.5", None),
        ("0.1B", None),
        ("-1MB", None),
        ("999999999999999TiB", None),
        ("", None),
        ("٣MB", None),
        ("inf", None),
    ],
)
def test_a_size_is_bytes_or_a_number_with_a_unit(text: str, size: int | None) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("now", NOW_MS),
        ("-90s", NOW_MS - 90_000),
        ("-1.5h", NOW_MS - 5_400_000),
        ("-1h30m", NOW_MS - 5_400_000),
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01 00:00:01", 1000),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T01:00:01+01:00", 1000),
        ("1970-01-01T00:00:00.999", 999),
        ("1960-01-01", -315_619_200_000),
        ("0001-01-01T00:00:00+23:59", -62_135_683_140_000),
        ("9999-12-31T23:59:59.999-23:59", 253_402_387_139_999),
        ("2h", None),
        ("+2h", None),
        ("-10", None),
        ("--1h", None),
        ("yesterday", None),
        ("", None),
        ("-", None),
    ],
)
def test_a_time_is_a_word_a_duration_ago_or_iso_8601(text: str, ms: int | None) -> None:
    assert parse_time_ms(text, now_ms=NOW_MS) == ms


@pytest.mark.parametrize("text", ["1712010100000", "1709123112000", "1712010100", "1795000000000", " 1712010100000 "])
def test_milliseconds_since_the_epoch_are_not_taken_for_a_day_in_the_eighteenth_century(text: str) -> None:
    assert parse_time_ms(text, now_ms=NOW_MS) is None
    assert parse_time_ms("20261122", now_ms=NOW_MS) == parse_time_ms("2026-11-22", now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("retention.ms", "7d", 604_800_000),
        ("offsets.retention.minutes", "1.5h", 90),
        ("delete.retention.hours", "90m", None),
        ("segment.bytes", "1GiB", 1 << 30),
        ("batch.size", "64KiB", 65_536),
        ("buffer.memory", "32MiB", 1 << 25),
        ("producer_byte_rate", "1MB", 1_000_000),
        ("leader.replication.throttled.rate", "10MB", 10_000_000),
        ("retention.ms", "1GiB", None),
        ("segment.bytes", "7d", None),
        ("retention.ms", "1000", None),
        ("retention.ms", "-1", None),
        ("client.id", "7d", None),
        ("retention.ms", "", None),
    ],
)
def test_a_setting_counts_in_the_unit_of_its_name(name: str, text: str, number: int | None) -> None:
    assert parse_setting(name, text) == number


@given(st.datetimes(timezones=st.just(dt.UTC)))
def test_a_datetime_keeps_its_milliseconds(moment: dt.datetime) -> None:
    whole = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    assert dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=datetime_ms(moment)) == whole
    assert parse_time_ms(moment.isoformat(), now_ms=NOW_MS) == datetime_ms(moment)


@given(st.text(max_size=80))
def test_any_text_is_a_number_or_none(text: str) -> None:
    readers = (parse_duration_ms, parse_size, lambda text: parse_setting("retention.ms", text))
    for found in (*(read(text) for read in readers), parse_time_ms(text, now_ms=NOW_MS)):
        assert found is None or -(2**63) <= found < 2**63
