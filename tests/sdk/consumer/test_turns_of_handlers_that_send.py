"""A partition waits for the acknowledgements of its run: a handler that sends has longer turns, and a window."""

from __future__ import annotations

from typing import Any

import pytest
from session_driver import A, Driver, assigned, of

from ottla.consumer.commit.commits import AtMostOnce
from ottla.consumer.model import events
from ottla.consumer.model.effects import Commit, Dispatch
from ottla.consumer.model.run import Run
from ottla.consumer.partitions.lanes import Ordering
from ottla.consumer.partitions.plan import DEFAULT_TURN_RECORDS as QUANTUM
from ottla.records import TopicPartition


def handled(driver: Driver, run: Run, *, took_ms: int = 0) -> list[Any]:
    """The run's worker is free, and what its handler sent is under way."""
    run.reached = len(run.records)
    return driver.step(events.RunHandled(run), after_ms=took_ms)


def test_the_turn_after_one_that_waits_for_acknowledgements_is_longer() -> None:
    driver = assigned()
    driver.fetch(A, *range(3_000))
    (first,) = driver.runs
    assert len(first.records) == QUANTUM
    handled(driver, first)
    driver.finish(first)
    (second,) = driver.runs
    assert len(second.records) == 16 * QUANTUM


def test_a_handler_that_sends_no_more_has_short_turns_again() -> None:
    driver = assigned()
    driver.fetch(A, *range(3_000))
    handled(driver, driver.runs[0])
    driver.finish(driver.runs[0])
    driver.now_ms += 3
    driver.finish(driver.runs[0])
    assert len(driver.runs[0].records) == QUANTUM


def test_a_slow_handler_has_turns_as_short_as_before() -> None:
    driver = assigned()
    driver.fetch(A, *range(3_000))
    handled(driver, driver.runs[0], took_ms=128)
    driver.finish(driver.runs[0])
    assert len(driver.runs[0].records) == 50


@pytest.mark.parametrize(
    "chosen",
    [
        {"max_records_per_turn": 100},
        {"is_batch": True},
        {"at_first": 128},
        {"commits_in_transactions": True},
    ],
)
def test_a_length_that_somebody_chose_stays(chosen: dict[str, Any]) -> None:
    driver = assigned(**chosen)
    driver.fetch(A, *range(3_000))
    handled(driver, driver.runs[0])
    driver.finish(driver.runs[0])
    assert len(driver.runs[0].records) == chosen.get("max_records_per_turn", QUANTUM)


def test_under_at_most_once_a_crash_loses_no_more_than_a_short_turn() -> None:
    driver = assigned(is_at_most_once=True, commits=AtMostOnce())

    def acknowledge() -> None:
        (commit,) = of(Commit, driver.effects)[-1:]
        driver.step(events.CommitSucceeded({name: offset for name, (offset, _) in commit.offsets.items()}))

    driver.fetch(A, *range(3_000))
    acknowledge()
    handled(driver, driver.runs[0])
    driver.finish(driver.runs[0])
    acknowledge()
    assert len(driver.runs[0].records) <= QUANTUM


def test_many_short_runs_wait_together_where_few_long_ones_do() -> None:
    """A trickle of fifty partitions, whose acknowledgements take long: one worker handles all of it."""
    places = [TopicPartition("orders", number) for number in range(50)]
    driver = assigned(*places)
    for place in places:
        driver.fetch(place, 0)
        (run,) = [run for run in driver.runs if run.topic_partition == place]
        handled(driver, run)
    assert len(driver.runs) == 50


def test_what_waits_for_acknowledgements_is_bounded_in_records() -> None:
    driver = assigned(ordering=Ordering.UNORDERED)
    for number in range(20):
        driver.fetch(A, *range(number * 1_000, (number + 1) * 1_000))
    waiting = 0
    while of(Dispatch, driver.effects):
        driver.effects.clear()
        waiting += len(driver.runs[-1].records)
        handled(driver, driver.runs[-1])
    assert 64 * QUANTUM <= waiting < 64 * QUANTUM + 16 * QUANTUM
    while not of(Dispatch, driver.effects):
        driver.finish(driver.runs[0])
    assert driver.runs
