"""Retries that are due, in the order of their offsets and keys, however many wait."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.consumer.model.run import AnyRecord
from ottla.consumer.partitions.lanes import Ordering, lanes_for
from ottla.consumer.partitions.waiting_retries import KeyedRetries, WaitingRetries
from ottla.records import Record


class CountedRecord(Record):  # type: ignore[type-arg]
    """A record that counts how often somebody asks for its offset or key."""

    asked = 0

    def __getattribute__(self, name: str) -> object:
        if name in ("offset", "raw_key"):
            CountedRecord.asked += 1
        return super().__getattribute__(name)


def record(offset: int, key: bytes | None, kind: type[AnyRecord] = Record) -> AnyRecord:
    return kind("orders", 0, offset, 0, key, b"v", [], key, b"v")


def test_the_group_with_the_earliest_record_comes_first_and_equal_ones_as_they_came() -> None:
    waiting = WaitingRetries()
    for offset, key in ((7, b"a"), (3, b"b"), (3, b"c"), (5, b"d")):
        waiting.add([record(offset, key)])
    assert waiting.records == 4
    assert [waiting.pop()[0].raw_key for _ in range(4)] == [b"b", b"c", b"d", b"a"]
    assert not waiting


def test_a_group_waits_for_the_earlier_one_of_its_keys_and_for_blocked_keys() -> None:
    waiting = KeyedRetries()
    waiting.add([record(1, b"a"), record(2, b"b")])
    waiting.add([record(3, b"b")])
    waiting.add([record(4, b"c")])
    waiting.add([record(5, None)])

    def taken(*blocked: bytes) -> list[int]:
        group = waiting.pop_ready(set(blocked))
        return [] if group is None else [each.offset for each in group]

    assert taken(b"a", b"c") == [5], "1 is blocked, and 3 waits for it"
    assert taken(b"a", b"c") == []
    waiting.unblock([b"c"])
    assert taken(b"a") == [4]
    waiting.unblock([b"a"])
    assert taken() == [1, 2]
    assert taken(b"a", b"b") == []
    waiting.unblock([b"a", b"b"])
    assert taken() == [3]
    assert not waiting
    assert not waiting.keys


keys = st.sampled_from([b"a", b"b", b"c", b"d", None])


@given(groups=st.lists(st.lists(keys, min_size=1, max_size=3), max_size=12), blocked=st.sets(keys), data=st.data())
def test_whatever_comes_out_is_what_a_search_of_all_groups_finds(
    groups: list[list[bytes | None]], blocked: set[bytes | None], data: st.DataObject
) -> None:
    offsets = iter(data.draw(st.permutations(range(36))))
    waiting, model = KeyedRetries(), []
    for each in groups:
        first = next(offsets)
        group = [record(first + at * 100, key) for at, key in enumerate(each)]
        waiting.add(group)
        model.append(group)
    model.sort(key=lambda group: group[0].offset)
    blocked_keys: set[bytes] = {key for key in blocked if key is not None}
    while True:
        expected = next(_ready(model, blocked_keys), None)
        found = waiting.pop_ready(blocked_keys)
        assert found == expected
        if found is None:
            if not blocked_keys:
                break
            blocked_keys.clear()
            waiting.unblock([b"a", b"b", b"c", b"d"])
            continue
        model.remove(found)
        waiting.unblock({each.raw_key for each in found if each.raw_key is not None})
    assert not model


def _ready(groups: list[list[AnyRecord]], blocked: set[bytes]) -> Iterator[list[AnyRecord]]:
    seen = set(blocked)
    for group in groups:
        own = {each.raw_key for each in group if each.raw_key is not None}
        if own.isdisjoint(seen):
            yield group
        seen |= own


@pytest.mark.parametrize("ordering", [Ordering.KEY, Ordering.UNORDERED])
def test_four_thousand_waiting_retries_cost_each_what_forty_do(ordering: Ordering) -> None:
    def asked_of_each(count: int) -> float:
        records = [record(offset, b"k%d" % offset, CountedRecord) for offset in range(count)]
        lanes = lanes_for(ordering)
        lanes.put(records)
        while run := lanes.take(128):
            for each in run:
                lanes.hold([each])
            lanes.end_run(run, ())
        CountedRecord.asked = 0
        for each in reversed(records):
            lanes.retry([each])
        while lanes.is_ready:
            lanes.end_run(lanes.take(128), ())
        assert lanes.waiting == 0
        return CountedRecord.asked / count

    assert asked_of_each(4_000) <= 1.1 * asked_of_each(40)
