"""When a record expires: what headers say, what a handler declares, and what bad input gets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import ConfigError, InputError
from ottla.failures import Dead, DeadLetterReason, Skip, build_dead_letter, build_redrive
from ottla.failures.expiry import EXPIRES_HEADER, Expiry, expires_at_of, with_expiry
from ottla.failures.retry_headers import RetryState
from ottla.records import Header, Record

NOW_MS = 1_700_000_000_000


def record(headers: list[Header] | None = None, *, timestamp_ms: int = NOW_MS, offset: int = 0) -> Record[Any]:
    return Record("quotes", 0, offset, timestamp_ms, None, b"v", headers, None, b"v")  # type: ignore[arg-type]


def written(**given: Any) -> int | None:
    return expires_at_of(
        with_expiry("quotes", [], **{"expires_after": None, "expires_at": None, **given}, now_ms=NOW_MS)
    )


def test_what_a_sender_says_is_an_absolute_time_in_a_header() -> None:
    assert written(expires_after=30) == NOW_MS + 30_000
    assert written(expires_after=0.25) == NOW_MS + 250
    assert written(expires_after=timedelta(minutes=1)) == NOW_MS + 60_000
    assert written(expires_at=datetime(2027, 1, 1, tzinfo=UTC)) == 1_798_761_600_000
    in_rome = datetime(2027, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    assert written(expires_at=in_rome) == 1_798_761_600_000


def test_a_record_that_is_sent_on_gets_the_new_time_in_place_of_the_old_one() -> None:
    before: list[Header] = [("a", b"1"), (EXPIRES_HEADER, b"5"), ("a", None)]
    after = with_expiry("quotes", before, expires_after=1, expires_at=None, now_ms=NOW_MS)
    assert after == [("a", b"1"), ("a", None), (EXPIRES_HEADER, b"%d" % (NOW_MS + 1_000))]


@pytest.mark.parametrize(
    ("given_", "wanted"),
    [
        ({"expires_after": -1}, "0 or more"),
        ({"expires_after": float("nan")}, "0 or more"),
        ({"expires_after": float("inf")}, "0 or more"),
        ({"expires_after": "30"}, "seconds"),
        ({"expires_after": True}, "seconds"),
        ({"expires_at": datetime(2027, 1, 1)}, "with a time zone"),
        ({"expires_at": 1_700_000_000}, "with a time zone"),
        ({"expires_at": datetime(1969, 1, 1, tzinfo=UTC)}, "after 1970"),
        ({"expires_at": datetime(2027, 1, 1, tzinfo=UTC), "expires_after": 1}, "one of them"),
    ],
)
def test_what_is_no_time_is_refused_with_the_topic_and_what_was_found(given_: dict[str, Any], wanted: str) -> None:
    with pytest.raises(InputError, match=wanted) as found:
        written(**given_)
    assert "quotes" in str(found.value)


@given(st.none() | st.binary(max_size=30))
def test_a_header_is_a_number_or_says_nothing(value: bytes | None) -> None:
    found = expires_at_of([(EXPIRES_HEADER, value)])
    is_number = value is not None and value.isdigit() and len(value) <= 18
    assert found == (int(value) if is_number and value is not None else None)


def test_a_forged_number_costs_no_time() -> None:
    assert expires_at_of([(EXPIRES_HEADER, b"9" * 1_000_000)]) is None


@given(
    header_ms=st.none() | st.integers(0, 2 * NOW_MS),
    ttl_ms=st.none() | st.integers(1, NOW_MS),
    grace_ms=st.integers(0, 10_000),
    timestamp_ms=st.integers(-1, 2 * NOW_MS),
)
def test_the_earlier_of_header_and_time_to_live_counts(
    header_ms: int | None, ttl_ms: int | None, grace_ms: int, timestamp_ms: int
) -> None:
    headers: list[Header] | None = None if header_ms is None else [(EXPIRES_HEADER, str(header_ms).encode())]
    found = Expiry(ttl_ms=ttl_ms, grace_ms=grace_ms).expires_ms(record(headers, timestamp_ms=timestamp_ms))
    told = (header_ms, None if ttl_ms is None or timestamp_ms < 0 else timestamp_ms + ttl_ms)
    known = [ms for ms in told if ms is not None]
    assert found == (min(known) + grace_ms if known else None)


def test_a_run_without_anything_that_expires_has_no_deadlines() -> None:
    records = [record(offset=0), record([("trace", b"1")], offset=1)]
    assert Expiry().deadlines(records) is None
    assert records[0]._headers is None, "no list is made for a record without headers"  # type: ignore[attr-defined]
    late = record([(EXPIRES_HEADER, b"7")], offset=2)
    assert Expiry().deadlines([*records, late]) == {2: 7}


def test_the_time_to_live_goes_on_through_a_retry_topic() -> None:
    story = RetryState(
        topic="quotes", partition=0, offset=3, timestamp_ms=NOW_MS - 9_000, attempts=1, not_before_ms=NOW_MS
    )
    assert Expiry(ttl_ms=10_000).expires_ms(record(story.to_headers([]))) == NOW_MS + 1_000


def test_the_time_to_live_goes_on_through_dead_letters_and_redrives() -> None:
    own: list[Header] = [(EXPIRES_HEADER, b"%d" % (NOW_MS + 60_000))]
    for _ in range(3):
        dead = build_dead_letter(
            topic="quotes",
            partition=0,
            offset=3,
            timestamp_ms=NOW_MS - 9_000,
            key=None,
            value=b"v",
            headers=own,
            reason=DeadLetterReason(kind="expired"),
        )
        redriven = build_redrive(key=None, value=b"v", headers=dead.headers)
        assert redriven is not None
        own = redriven.headers
        back = record(own, timestamp_ms=NOW_MS + 50_000)
        assert Expiry().expires_ms(back) == NOW_MS + 60_000
        assert Expiry(ttl_ms=10_000).expires_ms(back) == NOW_MS + 1_000


def test_what_cannot_work_is_refused_where_it_is_declared() -> None:
    def declared(**given: Any) -> Expiry:
        arguments = {"ttl_s": None, "grace_s": 0, "on_expired": None, "has_dead_letters": False}
        return Expiry.declared("on_quote", **{**arguments, **given})

    assert declared(ttl_s=1.5, grace_s=2).expires_ms(record()) == NOW_MS + 3_500
    assert declared().outcome == Skip("it expired")
    assert declared(on_expired=Dead("late"), has_dead_letters=True).outcome == Dead("late")
    for wrong in (
        {"ttl_s": 0},
        {"ttl_s": float("inf")},
        {"ttl_s": "60"},
        {"grace_s": -1},
        {"on_expired": "dead"},
        {"on_expired": Dead("late")},
    ):
        with pytest.raises(ConfigError, match="on_quote"):
            declared(**wrong)
