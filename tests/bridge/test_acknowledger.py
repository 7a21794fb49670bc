"""Acknowledgements leave in the order of the messages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.bridge.acknowledger import OrderedAcknowledger, Slot


@given(st.permutations(range(12)))
def test_slots_are_released_in_order_whatever_the_order_of_kafka(order: list[int]):
    acks = OrderedAcknowledger()
    slots = [acks.add(Slot(number)) for number in range(12)]
    released: list[int] = []
    settled: set[int] = set()
    for number in order:
        settled.add(number)
        released += [each.number for each in acks.settle(slots[number], 0)]
        contiguous = next((each for each in range(12) if each not in settled), 12)
        assert released == list(range(contiguous))
    assert not len(acks)


def test_what_is_settled_after_the_end_releases_nothing():
    acks = OrderedAcknowledger()
    first, second = acks.add(Slot(1)), acks.add(Slot(2))
    acks.void()
    assert acks.settle(first, 0) == []
    assert acks.settle(second, 0) == []
