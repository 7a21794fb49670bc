"""When a session is ready: what its age counts from, and what it does not."""

from __future__ import annotations

import pytest
from session_driver import BOOM, DEAD, RETRY, A, B, Driver, assigned

from ottla.consumer.commit.commits import AtMostOnce
from ottla.consumer.model import events
from ottla.consumer.model.run import RunResult
from ottla.consumer.partitions.lanes import Ordering
from ottla.consumer.readiness.health import unready_after_ms
from ottla.errors import ConfigError


def test_a_record_that_is_with_its_handler_for_too_long_makes_unready() -> None:
    driver = assigned()
    driver.fetch(A, 5)

    assert driver.session.health(60_000).is_ready
    health = driver.session.health(60_001)
    assert not health.is_ready
    assert health.is_alive
    assert "orders-0: offset 5 is unfinished for 60 s" in health.problems[0]
    assert "unready_after_s" in health.problems[0]
    assert health.partitions[0].oldest_unfinished_age_ms == 60_001


def test_a_slow_handler_with_a_long_backlog_is_ready_as_long_as_it_gets_on() -> None:
    driver = assigned(A, B)
    driver.fetch(A, *range(4_000))
    driver.fetch(B, *range(4_000))
    while driver.now_ms < 200_000:
        run = driver.runs[-1]
        for index in range(len(run.records)):
            run.done = index
            driver.now_ms += 40
            assert driver.session.health(driver.now_ms).is_ready, driver.now_ms
        run.done = len(run.records)
        driver.finish(run)
    assert all(age.oldest_unfinished_age_ms < 10_000 for age in driver.session.health(driver.now_ms).partitions)


def test_records_behind_one_that_hangs_make_unready_too() -> None:
    """They have the worker's partition to blame, and no probe must take their own for well."""
    driver = assigned(A, B)
    driver.fetch(A, 0)
    driver.fetch(B, 0)

    assert driver.session.health(60_000).is_ready
    problems = driver.session.health(60_001).problems
    assert [problem.split(":")[0] for problem in problems] == ["orders-0", "orders-1"]


def test_a_key_that_hangs_makes_unready_however_well_the_others_do() -> None:
    driver = assigned(ordering=Ordering.KEY, concurrency=2)
    driver.fetch(A, 0, key=b"hangs")
    for offset in range(1, 100):
        driver.fetch(A, offset, key=b"%d" % offset)
        driver.now_ms += 1_000
        driver.finish(driver.runs[-1])

    assert not driver.session.health(driver.now_ms).is_ready


def test_the_age_of_a_record_that_is_retried_counts_from_its_first_failure() -> None:
    driver = assigned()
    driver.fetch(A, 0)
    driver.now_ms = 5_000
    driver.fail(0, RETRY)
    driver.step(events.Tick(), after_ms=30_000)
    driver.fail(0, BOOM)
    driver.step(events.Tick(), after_ms=30_000)

    assert driver.session.health(65_000).is_ready
    assert not driver.session.health(65_001).is_ready


def test_the_age_of_a_record_whose_dead_letter_is_not_acknowledged_counts_from_the_decision() -> None:
    driver = assigned()
    driver.fetch(A, 0)
    driver.now_ms = 50_000
    driver.finish(result=RunResult(done=(), failures=[(driver.runs[-1].records[0], DEAD)]))

    assert driver.session.health(110_000).is_ready
    assert not driver.session.health(110_001).is_ready


def test_what_waits_because_the_user_paused_its_partition_is_not_late() -> None:
    driver = assigned()
    driver.fetch(A, 0)
    driver.fetch(A, 1)
    driver.step(events.PauseRequested([A]))
    driver.finish()

    assert driver.session.health(10_000_000).is_ready
    driver.now_ms = 10_000_000
    driver.step(events.ResumeRequested([A]))
    driver.now_ms += 60_001
    assert not driver.session.health(driver.now_ms).is_ready


def test_a_record_that_waits_for_its_claim_to_be_committed_counts_as_handed_out() -> None:
    driver = assigned(commits=AtMostOnce())
    driver.fetch(A, 0)

    assert not driver.session.health(60_001).is_ready


def running_ms(driver: Driver, now_ms: int) -> int:
    return driver.session.health(now_ms).partitions[0].handler_running_ms


def test_a_handler_runs_from_when_it_came_to_its_record() -> None:
    driver = assigned()
    driver.fetch(A, 0, 1, 2)
    assert running_ms(driver, 30_000) == 30_000
    driver.runs[-1].done = 1
    assert running_ms(driver, 40_000) == 0
    assert running_ms(driver, 55_000) == 15_000
    driver.now_ms = 60_000
    driver.finish()
    assert running_ms(driver, 70_000) == 0


def test_no_handler_runs_while_a_record_waits_for_its_next_attempt() -> None:
    driver = assigned()
    driver.fetch(A, 0)
    driver.fail(0, RETRY)
    health = driver.session.health(100)
    assert health.partitions[0].oldest_unfinished_age_ms == 100
    assert health.partitions[0].handler_running_ms == 0


def test_no_handler_runs_while_a_record_waits_for_the_commit_of_its_claim() -> None:
    driver = assigned(commits=AtMostOnce())
    driver.fetch(A, 0)
    assert running_ms(driver, 50_000) == 0
    driver.now_ms = 50_000
    driver.step(events.CommitSucceeded({A: 1}))
    assert running_ms(driver, 62_000) == 12_000


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_a_limit_that_makes_no_sense_is_refused_by_name(seconds: float) -> None:
    with pytest.raises(ConfigError, match="unready_after_s must be more than 0"):
        unready_after_ms(seconds)
