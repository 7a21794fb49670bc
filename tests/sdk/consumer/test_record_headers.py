"""A record's headers are a list of its own, also where it came without any and the list is made when asked for."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import pytest

from ottla.aio.consume.messages import to_batches as to_batches_on_asyncio
from ottla.records import Record, TopicPartition


def record(headers: Any = None) -> Record[bytes]:
    return Record("orders", 0, 7, 5, b"k", b"v", headers, b"k", b"v")


def test_without_headers_it_has_an_empty_list_that_stays_its_own() -> None:
    one, other = record(), record()
    one.headers.append(("trace", b"1"))
    assert one.headers == [("trace", b"1")]
    assert other.headers == []
    assert other.headers is other.headers


def test_headers_are_kept_and_can_be_replaced() -> None:
    given = [("trace", b"\xff"), ("null", None)]
    one = record(given)
    assert one.headers is given
    one.headers = [("trace", b"2")]
    assert (one.header("trace"), one.header("null")) == (b"2", None)


@pytest.mark.parametrize("headers", [None, [], [("trace", b"1")]])
def test_every_way_to_look_at_it_shows_a_list(headers: Any) -> None:
    wanted = list(headers or [])
    assert record(headers).headers == wanted
    assert (
        Record(
            topic="t",
            partition=0,
            offset=0,
            timestamp_ms=0,
            key=None,
            value=None,
            headers=headers,
            raw_key=None,
            raw_value=None,
        ).headers
        == wanted
    )
    assert copy.copy(record(headers)).headers == wanted
    assert pickle.loads(pickle.dumps(record(headers))).headers == wanted
    assert repr(record(headers)) == f"Record(orders-0@7, key=b'k', value=b'v', headers={wanted})"
    match record(headers):
        case Record(offset=7, headers=matched):
            assert matched == wanted
        case _:
            pytest.fail("no match")


def test_a_record_that_waits_has_nothing_for_the_garbage_collector_to_follow() -> None:
    waiting: Any = record()
    assert not gc.is_tracked(waiting)
    assert waiting._headers is None, "no list before somebody asks"
    assert (waiting.header("trace"), waiting.headers) == (None, [])


def test_aiokafkas_records_without_headers_have_a_list_as_well() -> None:
    class Message:
        offset, timestamp, timestamp_type, key, value = 7, 5, 0, b"k", b"v"

        def __init__(self, headers: Any) -> None:
            self.headers = headers

    messages = [Message(()), Message([("trace", b"1")])]
    (batch,) = to_batches_on_asyncio(TopicPartition("orders", 0), messages)
    assert [each.headers for each in batch.records] == [[], [("trace", b"1")]]
