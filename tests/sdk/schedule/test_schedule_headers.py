"""The records of a schedule topic: what is written is what is read, and what anybody else writes harms nobody."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.producer.later import later_of, scheduled
from ottla.records import Header, Record
from ottla.schedule.headers import (
    CANCEL_HEADERS,
    FACTS,
    PREFIX,
    Cancel,
    Done,
    ScheduledMessage,
    delivered,
    done_record,
    message_facts,
    parse,
    ranges_of,
    rolled,
    with_facts,
)

NOW_MS = 1_700_000_000_000
own_headers = st.lists(
    st.tuples(
        st.text(max_size=8).filter(lambda name: not name.startswith("ottla-")), st.none() | st.binary(max_size=9)
    ),
    max_size=4,
)
some_bytes = st.none() | st.binary(max_size=12)


def record(headers: list[Header], *, key: bytes | None = None, value: bytes | None = b"v") -> Record[Any]:
    return Record("ottla.schedule.s", 5, 7, NOW_MS, key, value, headers, key, value)


@given(
    own=own_headers,
    key=some_bytes,
    value=some_bytes,
    id=st.none() | st.text(min_size=1, max_size=9),
    partition=st.none() | st.integers(0, 99),
    delay_ms=st.integers(0, 10**12),
    ttl_ms=st.none() | st.integers(0, 10**9),
    moves=st.integers(0, 3),
    is_said_in_key=st.booleans(),
)
def test_a_message_is_delivered_byte_for_byte_however_often_it_was_moved(
    own: list[Header],
    key: bytes | None,
    value: bytes | None,
    id: str | None,
    partition: int | None,
    delay_ms: int,
    ttl_ms: int | None,
    moves: int,
    is_said_in_key: bool,
) -> None:
    facts = message_facts(topic="target", partition=partition, due_ms=None, delay_ms=delay_ms, ttl_ms=ttl_ms)
    if id is None and is_said_in_key:
        message = parse(record(with_facts(own, None, key), key=facts[1], value=value))
    else:
        message = parse(record(with_facts(own, facts, key), key=None if id is None else id.encode(), value=value))
    for number in range(moves):
        assert isinstance(message, ScheduledMessage)
        moved = rolled(message, 9)
        later: Record[Any] = Record(
            moved.topic, 9, number, NOW_MS + 9_999, moved.key, moved.value, moved.headers, moved.key, moved.value
        )
        message = parse(later)
    assert isinstance(message, ScheduledMessage)
    assert (message.due_ms, message.at_ms, message.rolls) == (NOW_MS + delay_ms, NOW_MS, moves)
    assert message.id == (id if id is not None else "ottla.schedule.s-5@7")
    found = delivered(message)
    assert (found.topic, found.partition, found.key, found.value) == ("target", partition, key, value)
    ours = [header for header in found.headers if header[0].startswith("ottla-")]
    assert [header for header in found.headers if header not in ours] == own
    said = dict(ours)
    assert said["ottla-scheduled-due"] == b"%d" % message.due_ms
    assert said["ottla-scheduled-id"] == message.id.encode()
    expires = None if ttl_ms is None else b"%d" % (message.due_ms + ttl_ms)
    assert said.get("ottla-expires-at") == expires
    assert not [name for name in said if name.startswith(PREFIX)]


@given(st.sets(st.integers(0, 60)))
def test_what_is_done_is_written_as_ranges(offsets: set[int]) -> None:
    done = done_record("ottla.schedule.s", 5, offsets)
    found = parse(record(done.headers, value=done.value))
    assert isinstance(found, Done)
    assert {offset for start, end in found.ranges for offset in range(start, end)} == offsets
    assert list(ranges_of(offsets)) == found.ranges
    assert all(end < start for (_, end), (start, _) in zip(found.ranges, found.ranges[1:], strict=False))


def test_a_message_says_all_of_itself_in_one_header() -> None:
    facts = message_facts(topic="t", partition=3, due_ms=None, delay_ms=60_000, ttl_ms=5)
    assert with_facts([("own", b"1")], facts, b"k") == [
        ("own", b"1"),
        (FACTS, b"message t 3 +60000 5"),
        (PREFIX + "key", b"k"),
    ]
    facts = message_facts(topic="t", partition=None, due_ms=NOW_MS, delay_ms=None, ttl_ms=None)
    assert with_facts([], facts, None) == [(FACTS, b"message t - %d -" % NOW_MS)]


def test_a_message_without_an_id_says_it_in_its_key_and_one_with_an_id_in_a_header() -> None:
    none = later_of("t", 60, None, None, 5, "s")
    said = b"message t - +60000 5000"
    assert scheduled(none, "t", None, None, [], NOW_MS)[1:] == (said, [])
    assert scheduled(none, "t", 3, b"k", [("own", b"1")], NOW_MS)[1:] == (
        b"message t 3 +60000 5000",
        [("own", b"1"), (PREFIX + "key", b"k")],
    )
    with_id = later_of("t", 60, None, "message t - +1 -", 5, "s")
    assert scheduled(with_id, "t", None, None, [], NOW_MS)[1:] == (b"message t - +1 -", [(FACTS, said)])


@pytest.mark.parametrize("key", [b"cancel", b"done", b"message", b"message t - 5", None, b"", b"x", b"\xff"])
def test_a_key_alone_is_no_message_unless_it_says_all_of_one(key: bytes | None) -> None:
    assert parse(record([], key=key, value=b"[]")) is None
    assert parse(record([(PREFIX + "id", b"i")], key=b"message t - 5 -", value=b"v")) is None


def test_a_cancel_names_an_id() -> None:
    assert parse(record(list(CANCEL_HEADERS), key=b"x", value=None)) == Cancel(7, "x", NOW_MS)
    assert parse(record(list(CANCEL_HEADERS), key=None)) is None


words = st.sampled_from([b"message", b"cancel", b"done", b"", b"\xff", b"target", b"a/b"])
numbers = st.sampled_from([b"-", b"12", b"+12", b"-1", b"+", b"", b"9" * 19, b"1e9", b"\xff", "٣".encode()])


@given(
    facts=st.lists(
        st.sampled_from([b"message", b"cancel", b"done", b"", b"\xff", b"target", b"a/b"]) | numbers, max_size=9
    )
    | st.tuples(st.just(b"message"), st.just(b"target"), numbers, numbers, numbers)
    | st.tuples(st.just(b"message"), st.just(b"target"), numbers, numbers, numbers, numbers, numbers),
    more=st.lists(
        st.tuples(st.sampled_from([PREFIX + "key", PREFIX + "id"]), st.none() | st.binary(max_size=30)), max_size=3
    ),
    key=some_bytes,
    value=some_bytes
    | st.sampled_from([b"[[1,2]]", b"[[2,1]]", b"[1]", b"{}", b"[[0,1e9]]", b'[["a",2]]', b"[" * 2_000, b"[[0,9e18]]"]),
)
def test_what_anybody_may_write_is_read_or_passed_over(
    facts: tuple[bytes, ...], more: list[Header], key: bytes | None, value: bytes | None
) -> None:
    found = parse(record([(FACTS, b" ".join(facts)), *more], key=key, value=value))
    if isinstance(found, ScheduledMessage):
        assert found.due_ms < 10**19
        delivered(found)
        rolled(found, 1)
    said_in_key = parse(record(more, key=b" ".join(facts), value=value))
    assert said_in_key is None or isinstance(said_in_key, ScheduledMessage)


@pytest.mark.parametrize(
    "value",
    [
        b"[" * 2_000,
        b"[" * 2_000 + b"]" * 2_000,
        b"[[true,2]]",
        b"[[0,9223372036854775808]]",
        b"[[[0,1],2]]",
        b"[NaN]",
        None,
    ],
)
def test_what_is_done_is_passed_over_where_it_is_no_list_of_ranges(value: bytes | None) -> None:
    assert parse(record([(FACTS, b"done")], value=value)) is None


def test_ranges_that_anybody_wrote_are_sorted_and_do_not_overlap() -> None:
    found = parse(record([(FACTS, b"done")], value=b"[[8,9],[1,4],[2,3],[3,6],[8,9]]"))
    assert isinstance(found, Done)
    assert found.ranges == [(1, 6), (8, 9)]
