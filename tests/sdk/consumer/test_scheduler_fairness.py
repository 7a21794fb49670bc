"""Deficit round robin: the bound that C3 promises, as a property."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.consumer.scheduling.scheduler import DeficitRoundRobin


def drain(scheduler: DeficitRoundRobin[str], buffers: dict[str, list[int]], *, turns: int = 10_000) -> list[str]:
    """Hand out everything as the session does; one entry per record. Costs are in the buffers."""
    order: list[str] = []
    for key, buffer in buffers.items():
        if buffer:
            scheduler.activate(key)
    for _ in range(turns):
        turn = scheduler.next_turn()
        if turn is None:
            return order
        key, allowance = turn
        cost = 0
        while buffers[key] and cost < allowance:
            cost += buffers[key].pop(0)
            order.append(key)
        scheduler.spent(key, allowance=allowance, cost=cost)
        if buffers[key]:
            scheduler.activate(key)
    raise AssertionError("the scheduler does not come to an end")


@given(
    sizes=st.dictionaries(st.sampled_from("ABCDE"), st.integers(0, 60), min_size=2),
    quantum=st.integers(1, 12),
)
def test_never_more_than_a_quantum_of_one_partition_between_two_records_of_another(
    sizes: dict[str, int], quantum: int
) -> None:
    buffers = {key: [1] * size for key, size in sizes.items()}
    order = drain(DeficitRoundRobin(quantum=quantum), buffers)

    assert {key: order.count(key) for key in sizes} == sizes
    for other in sizes:
        places = [index for index, key in enumerate(order) if key == other]
        # While both have records: up to the last record of `other`, everything between two of its records competes.
        for start, end in zip([-1, *places], places, strict=False):
            between = order[start + 1 : end]
            for key in set(between):
                assert between.count(key) <= quantum, f"{between.count(key)} of {key} before the next {other}"


@given(
    costs=st.dictionaries(st.sampled_from("ABC"), st.lists(st.integers(1, 500), min_size=20, max_size=40), min_size=2),
    quantum=st.integers(50, 200),
)
def test_by_bytes_everybody_gets_the_same_share_up_to_one_quantum_and_one_record(
    costs: dict[str, list[int]], quantum: int
) -> None:
    scheduler: DeficitRoundRobin[str] = DeficitRoundRobin(quantum=quantum)
    buffers = {key: list(each) for key, each in costs.items()}
    got = dict.fromkeys(costs, 0)
    largest = max(max(each) for each in costs.values())
    for key in costs:
        scheduler.activate(key)
    while all(buffers.values()):
        turn = scheduler.next_turn()
        assert turn is not None
        key, allowance = turn
        cost = 0
        while buffers[key] and cost < allowance:
            cost += buffers[key].pop(0)
        got[key] += cost
        scheduler.spent(key, allowance=allowance, cost=cost)
        if buffers[key]:
            scheduler.activate(key)
        assert max(got.values()) - min(got.values()) <= 2 * quantum + largest


def test_a_weight_gives_longer_turns() -> None:
    scheduler: DeficitRoundRobin[str] = DeficitRoundRobin(quantum=2)
    scheduler.set_weight("A", 3)

    assert "".join(drain(scheduler, {"A": [1] * 9, "B": [1] * 6})) == "AAAAAABBAAABBBB"


def test_a_record_larger_than_many_quanta_passes_and_is_paid_for() -> None:
    scheduler: DeficitRoundRobin[str] = DeficitRoundRobin(quantum=10)

    order = drain(scheduler, {"A": [35, 1], "B": [10] * 6})

    assert "".join(order) == "ABBBABBB"


def test_leaving_the_ring_does_not_pay_a_debt() -> None:
    scheduler: DeficitRoundRobin[str] = DeficitRoundRobin(quantum=10)
    scheduler.activate("A")
    scheduler.spent("A", allowance=10, cost=25)
    scheduler.deactivate("A")
    scheduler.activate("A")

    assert scheduler.next_turn() == ("A", 5)


def test_who_comes_back_joins_at_the_tail() -> None:
    scheduler: DeficitRoundRobin[str] = DeficitRoundRobin(quantum=1)
    for key in "ABC":
        scheduler.activate(key)
    scheduler.deactivate("A")
    scheduler.activate("A")

    assert [turn[0] for turn in iter(scheduler.next_turn, None)] == ["B", "C", "A"]


def test_a_forgotten_partition_has_no_turn_and_no_debt() -> None:
    scheduler: DeficitRoundRobin[str] = DeficitRoundRobin(quantum=10)
    scheduler.activate("A")
    scheduler.spent("A", allowance=10, cost=100)
    scheduler.forget("A")
    assert scheduler.next_turn() is None
    scheduler.activate("A")

    assert scheduler.next_turn() == ("A", 10)


@pytest.mark.parametrize("quantum", [0, -1])
def test_a_quantum_is_at_least_one(quantum: int) -> None:
    with pytest.raises(ValueError, match="quantum"):
        DeficitRoundRobin(quantum=quantum)


def test_a_weight_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="weight"):
        DeficitRoundRobin(quantum=1).set_weight("A", 0)
