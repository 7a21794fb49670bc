"""The deadlines of locks: taken in their order, whatever order they were added in."""

from __future__ import annotations

import heapq
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.share.deadlines import Deadlines

RANGES = st.tuples(st.integers(0, 50), st.integers(0, 9), st.integers(0, 9))


@given(st.lists(st.one_of(st.none(), RANGES), max_size=300))
def test_they_are_taken_as_from_a_heap(steps: list[Any]) -> None:
    """None takes one. A lock that was changed, and a write that failed, add one that is earlier than others."""
    deadlines, heap = Deadlines(), []
    for added in steps:
        if added is not None:
            deadlines.add(*added)
            heapq.heappush(heap, added)
        elif heap:
            taken = deadlines.take()
            assert taken[0] == heap[0][0]
            heap.remove(taken)
            heapq.heapify(heap)
        assert len(deadlines) == len(heap)
        assert deadlines.next_ms == (heap[0][0] if heap else None)
    assert sorted(deadlines.take() for _ in range(len(deadlines))) == sorted(heap)


def test_what_was_taken_takes_no_memory() -> None:
    deadlines = Deadlines()
    for number in range(10_000):
        deadlines.add(number, number, number)
        if number >= 100:
            assert deadlines.take() == (number - 100, number - 100, number - 100)
    assert len(deadlines) == 100
    assert len(deadlines._at_ms) <= 2 * 100 + 64
