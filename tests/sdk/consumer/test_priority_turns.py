"""Turns among priorities: the bound that is promised, as a property, and the shares that follow from it."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import floor
from random import Random

from hypothesis import assume, given
from hypothesis import strategies as st

from ottla.consumer.scheduling.priorities import PriorityTurns


def turns_of(every: list[int]) -> PriorityTurns[tuple[int, int]]:
    return PriorityTurns(quantum=1, every=every, priority_of=lambda key: key[0])


def bound_of(every: list[int], priority: int) -> int:
    """As the module states it."""
    if priority:
        return every[priority] - 1 + len(every) - 2
    owed = sum(Fraction(1, turns) for turns in every[1:])
    return floor((len(every) - 1 - owed) / (1 - owed))


@st.composite
def shares(draw: st.DrawFn) -> list[int]:
    lower = draw(st.lists(st.integers(2, 30), min_size=1, max_size=5))
    assume(sum(Fraction(1, turns) for turns in lower) < 1)
    return [1, *lower]


@given(every=shares(), seed=st.integers(0, 2**32), partitions=st.integers(1, 3), busy=st.floats(0.05, 1.0))
def test_a_ready_priority_is_passed_over_no_more_often_than_was_promised(
    every: list[int], seed: int, partitions: int, busy: float
) -> None:
    """Records come and go at random; who is ready is counted here, not taken from the scheduler."""
    random = Random(seed)
    turns = turns_of(every)
    ready: set[tuple[int, int]] = set()
    passed = [0] * len(every)
    for _ in range(400):
        for priority in range(len(every)):
            for partition in range(partitions):
                if random.random() < busy:
                    ready.add((priority, partition))
                    turns.activate((priority, partition))
        if ready and random.random() < 0.1:
            gone = random.choice(sorted(ready))
            ready.discard(gone)
            turns.deactivate(gone)
        for priority in range(len(every)):
            if not any(key[0] == priority for key in ready):
                passed[priority] = 0
        turn = turns.next_turn()
        if turn is None:
            assert not ready
            continue
        key, allowance = turn
        ready.discard(key)
        brought = 0 if random.random() < 0.1 else 1
        turns.spent(key, allowance=allowance, cost=brought)
        if not brought:
            continue
        for priority in range(len(every)):
            is_ready = any(other[0] == priority for other in ready)
            passed[priority] = passed[priority] + 1 if is_ready and priority != key[0] else 0
            assert passed[priority] <= bound_of(every, priority), f"priority {priority} of {every}"


def test_under_saturation_the_lower_ones_have_their_declared_shares() -> None:
    turns = turns_of([1, 4, 20])
    served: Counter[int] = Counter()
    for _ in range(20_000):
        for priority in range(3):
            turns.activate((priority, 0))
        turn = turns.next_turn()
        assert turn is not None
        turns.spent(turn[0], allowance=turn[1], cost=1)
        served[turn[0][0]] += 1
    assert abs(served[2] / 20_000 - 1 / 20) < 0.001
    assert abs(served[1] / 20_000 - 1 / 4) < 0.001


def test_a_lone_urgent_record_waits_for_one_turn_at_most() -> None:
    turns = turns_of([1, 4, 20])
    random = Random(7)
    for _ in range(2_000):
        for priority in (1, 2):
            turns.activate((priority, 0))
        if random.random() < 0.05:
            turns.activate((0, 0))
        waited = (0, 0) in turns
        turn = turns.next_turn()
        assert turn is not None
        turns.spent(turn[0], allowance=turn[1], cost=1)
        if waited and turn[0][0]:
            following = turns.next_turn()
            assert following is not None
            assert following[0] == (0, 0)
            turns.spent(following[0], allowance=following[1], cost=1)


def test_partitions_of_one_priority_take_turns() -> None:
    turns = turns_of([1, 4])
    order = []
    for _ in range(6):
        for partition in range(3):
            turns.activate((0, partition))
        turn = turns.next_turn()
        assert turn is not None
        turns.spent(turn[0], allowance=turn[1], cost=1)
        order.append(turn[0][1])
    assert order == [0, 1, 2, 0, 1, 2]


@given(every=shares(), most=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_a_turn_that_is_kept_for_the_higher_ones_goes_to_nobody_else(every: list[int], most: int, seed: int) -> None:
    random = Random(seed)
    turns = turns_of(every)
    for _ in range(100):
        for priority in range(len(every)):
            if random.random() < 0.5:
                turns.activate((priority, 0))
        allowed = min(most, len(every))
        turn = turns.next_turn(allowed)
        if turn is None:
            assert not any((priority, 0) in turns for priority in range(allowed))
        else:
            assert turn[0][0] < allowed
            turns.spent(turn[0], allowance=turn[1], cost=1)
