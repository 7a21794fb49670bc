"""A turn grows while it takes less than a millisecond, and ends early where its handler has become slow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_driver import A, B, Driver, assigned, offsets_of

from ottla.consumer.model import events
from ottla.consumer.model.run import RunResult
from ottla.consumer.partitions.flow import FlowLimits
from ottla.consumer.partitions.lanes import Ordering
from ottla.consumer.partitions.plan import DEFAULT_TURN_MS
from ottla.consumer.partitions.plan import DEFAULT_TURN_RECORDS as QUANTUM

LONGEST = 16 * QUANTUM
TICK_MS = 20


def lengths(driver: Driver, *took_ms: int) -> list[int]:
    """The lengths of the runs that follow runs which take so long."""
    found = []
    for ms in took_ms:
        driver.now_ms += ms
        driver.finish()
        found.append(len(driver.runs[-1].records))
    return found


def test_a_turn_doubles_while_it_takes_less_than_a_millisecond_and_halves_beyond_two() -> None:
    driver = assigned(flow=FlowLimits(high_records=20_000))
    driver.fetch(A, *range(19_000))
    assert lengths(driver, 0, 0, 0) == [2 * QUANTUM, 4 * QUANTUM, 8 * QUANTUM]
    assert lengths(driver, 1, 2, 1) == [8 * QUANTUM] * 3
    assert lengths(driver, 0, 0) == [LONGEST, LONGEST]
    assert lengths(driver, 3, 4) == [8 * QUANTUM, 4 * QUANTUM]
    assert lengths(driver, *[5] * 6)[-1] == QUANTUM


def test_a_turn_that_was_short_of_records_says_nothing() -> None:
    driver = assigned()
    for number in range(20):
        driver.fetch(A, number)
        driver.finish()
    driver.fetch(A, *range(100, 3_000))
    assert len(driver.runs[-1].records) == QUANTUM


@pytest.mark.parametrize("chosen", [{"has_fixed_turns": True}, {"max_records_per_turn": 100}, {"at_first": 128}])
def test_a_length_that_somebody_chose_stays(chosen: dict[str, object]) -> None:
    driver = assigned(**chosen)
    driver.fetch(A, *range(3_000))
    assert max(lengths(driver, 0, 0, 0)) <= QUANTUM


def long_turn_of_a() -> Driver:
    driver = assigned(A, B, flow=FlowLimits(high_records=20_000))
    driver.fetch(A, *range(10_000))
    lengths(driver, 0, 0, 0, 0)
    assert len(driver.runs[-1].records) == LONGEST
    return driver


def test_a_long_turn_ends_early_where_the_handler_has_become_slow_and_others_wait() -> None:
    driver = long_turn_of_a()
    (run,) = driver.runs
    driver.fetch(B, 0)
    driver.step(events.Tick(), after_ms=DEFAULT_TURN_MS)
    assert not run.is_cancelled
    driver.step(events.Tick(), after_ms=1)
    assert run.is_cancelled

    driver.finish(run, RunResult(done=run.records[:7], untouched=run.records[7:]))
    assert driver.runs[-1].topic_partition == B
    driver.finish()
    assert driver.runs[-1].topic_partition == A
    assert offsets_of(driver.runs[-1])[0] == offsets_of(run)[7], "it goes on where it was ended, in order"


def test_a_long_turn_goes_on_while_nobody_else_waits() -> None:
    driver = long_turn_of_a()
    driver.step(events.Tick(), after_ms=10 * DEFAULT_TURN_MS)
    assert not driver.runs[-1].is_cancelled


@given(
    quick=st.integers(2, 5),
    slow_ms=st.sampled_from([1, 7, 60]),
    ordering=st.sampled_from(list(Ordering)),
    hot=st.integers(1, 2),
)
def test_a_quiet_partition_waits_no_longer_when_a_quick_handler_becomes_slow(
    quick: int, slow_ms: int, ordering: Ordering, hot: int
) -> None:
    places = [A, *[type(A)("orders", number) for number in range(2, 1 + hot)]]
    driver = assigned(*places, B, ordering=ordering, flow=FlowLimits(high_records=20_000))
    for place in places:
        driver.fetch(place, *range(9_000))
    lengths(driver, *[0] * quick * hot)
    driver.fetch(B, 0)
    waited_ms = turns = 0
    handled: list[tuple[int, int]] = []
    while (run := driver.runs[-1]).topic_partition != B:
        done = 0
        while done < len(run.records) and not run.is_cancelled:
            done += 1
            waited_ms += slow_ms
            driver.now_ms += slow_ms
            if waited_ms % TICK_MS < slow_ms:
                driver.step(events.Tick())
        handled += [(run.topic_partition.partition, offset) for offset in offsets_of(run)[:done]]
        driver.finish(run, RunResult(done=run.records[:done], untouched=run.records[done:]))
        turns += 1
    assert turns <= hot + 1
    assert waited_ms <= turns * (DEFAULT_TURN_MS + max(TICK_MS, slow_ms) + slow_ms)
    assert len(set(handled)) == len(handled)
    for place in places:
        offsets = [offset for partition, offset in handled if partition == place.partition]
        assert offsets == sorted(offsets)
