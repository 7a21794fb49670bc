"""Acknowledgements leave in the order of the messages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.bridge.acknowledger import OrderedAcknowledger, Slot


class Holder:
    """A connection that asks for what is released by itself."""

    def settled(self) -> None:
        pass


HOLDER = Holder()


@given(st.permutations(range(12)))
def test_slots_are_released_in_order_whatever_the_order_of_kafka(order: list[int]):
    acks = OrderedAcknowledger()
    slots = [acks.add(Slot(number, 1, HOLDER)) for number in range(12)]
    released: list[int] = []
    settled: set[int] = set()
    for number in order:
        settled.add(number)
        slots[number].settle(0)
        released += [each.number for each in acks.released()]
        contiguous = next((each for each in range(12) if each not in settled), 12)
        assert released == list(range(contiguous))
    assert not len(acks)


def test_what_is_settled_after_the_end_releases_nothing():
    acks = OrderedAcknowledger()
    first, second = acks.add(Slot(1, 1, HOLDER)), acks.add(Slot(2, 1, HOLDER))
    acks.void()
    first.settle(0)
    second.settle(0)
    acks.add(Slot(3, 1, HOLDER)).settle(0)
    assert acks.released() == []
