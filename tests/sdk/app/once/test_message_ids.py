"""Which message a record carries, whoever wrote it, and what producers write."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import InputError
from ottla.failures.retry_headers import RetryState
from ottla.once.message_id import ids_by_header, message_id_of
from ottla.producer.message_ids import MessageIds, with_message_id
from ottla.records import Header, Record


def record(*headers: Header, value: Any = None, offset: int = 7) -> Record[Any]:
    return Record("orders", 0, offset, 1_000, None, value, list(headers), None, b"")


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ([("ottla-id", b"a"), ("ce_id", b"b"), ("ce_source", b"/s"), ("id", b"c")], "a"),
        ([("ottla-id", b"a"), ("ottla-id", b"b")], "b"),
        ([("ottla-id", b""), ("id", b"c")], "c"),
        ([("ottla-id", None), ("id", b"c")], "c"),
        ([("ce_id", b"b"), ("ce_source", b"/s"), ("id", b"c")], "ce:/s b"),
        ([("ce_id", b"b"), ("id", b"c")], "c"),
        ([("id", b"c")], "c"),
    ],
)
def test_the_first_id_that_is_there_counts(headers: list[Header], wanted: str) -> None:
    assert message_id_of(record(*headers)) == (wanted, False)


def test_without_an_id_it_is_the_position_and_time_of_the_original() -> None:
    original = record()
    state = RetryState(
        topic="orders", partition=0, offset=7, timestamp_ms=1_000, attempts=1, not_before_ms=0, first_failure_ms=None
    )
    retried = Record("orders.retry", 0, 99, 5_000, None, None, state.to_headers([]), None, b"")
    assert message_id_of(original) == ("orders-0@7/1000", True)
    assert message_id_of(retried) == message_id_of(original)


@pytest.mark.parametrize(("given_id", "wanted"), [("x", "x"), (b"x", "x"), (17, "17"), (None, "header")])
def test_a_function_goes_first_and_none_passes(given_id: Any, wanted: str) -> None:
    assert message_id_of(record(("ottla-id", b"header")), lambda _: given_id) == (wanted, False)


@pytest.mark.parametrize("wrong", [True, 1.5, ["x"]])
def test_a_function_that_returns_no_id_is_an_error(wrong: Any) -> None:
    with pytest.raises(TypeError, match="wanted str, bytes, int, UUID or None"):
        message_id_of(record(), lambda _: wrong)


@given(st.binary(min_size=1, max_size=400))
def test_any_header_becomes_a_key_that_every_store_takes(raw: bytes) -> None:
    found, _ = message_id_of(record(("ottla-id", raw)))
    assert 0 < len(found.encode()) <= 200
    assert "\0" not in found


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["ottla-id", "id", "trace"]),
        st.none() | st.binary(max_size=5) | st.just(b"x" * 201) | st.sampled_from([b"\xff", b"a\0b", "é".encode()]),
    ),
    max_size=3,
)


@given(st.lists(HEADERS, max_size=6))
def test_ids_that_are_found_together_are_those_found_one_by_one(given_headers: list[list[Header]]) -> None:
    records = [record(*headers, offset=10 + number) for number, headers in enumerate(given_headers)]
    by_header = [one for one in records if any(name == "ottla-id" and value for name, value in one.headers)]
    assert ids_by_header(records) == {one.offset: message_id_of(one)[0] for one in by_header}


def test_two_long_ids_stay_two() -> None:
    one, other = (message_id_of(record(("ottla-id", b"x" * 300 + end)))[0] for end in (b"1", b"2"))
    assert one != other


def test_a_producer_makes_ids_that_differ_and_leaves_those_that_are_there() -> None:
    ids = MessageIds("00ff")
    assert with_message_id("t", (), None, ids) == [("ottla-id", b"00ff-1")]
    assert with_message_id("t", [("a", b"b")], None, ids) == [("a", b"b"), ("ottla-id", b"00ff-2")]
    kept = [("ottla-id", b"mine")]
    assert with_message_id("t", kept, None, ids) == kept
    assert with_message_id("t", kept, "other", ids) == [("ottla-id", b"other")]
    assert with_message_id("t", (), None, None) == ()


@pytest.mark.parametrize("wrong", ["", b"x", 5])
def test_an_id_that_is_no_text_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match="wanted text that is not empty"):
        with_message_id("t", (), wrong, None)
