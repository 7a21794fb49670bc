"""Expired records in the session: one log line a minute, no budget, no waiting for what nobody would get."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ottla.consumer.model import events
from ottla.consumer.model.effects import Expired, Notice
from ottla.consumer.model.failed_writes import WriteDeadLetter, WriteRetry
from ottla.consumer.model.run import RunResult
from ottla.failures import Dead, DeadLetterBudget, Failure, FailurePolicy, RetryPolicy, RetryTopics, Skip
from ottla.failures.expiry import EXPIRES_HEADER, Expiry
from ottla.records import Record
from tests.kit.session_driver import BOOM, RETRY, A, Driver, assigned, of

WALL_MS = 1_700_000_000_000
LATE = Failure.of_expiry(Dead("too old"))


def policy(outcome: Skip | Dead, **more: Any) -> FailurePolicy:
    retry = RetryPolicy(max_attempts=3, initial_s=10, jitter=0)
    return FailurePolicy(retry=retry, dead_letter_topic="dead", expiry=Expiry(outcome=outcome), **more)


def fetch_expiring(driver: Driver, *offsets: int, in_ms: int) -> None:
    headers = [(EXPIRES_HEADER, b"%d" % (WALL_MS + driver.now_ms + in_ms))]
    records: list[Any] = [Record(*A, offset, 0, b"k", b"v", list(headers), b"k", b"v") for offset in offsets]
    driver.step(events.Fetched(A, records, 10))


def lines(driver: Driver) -> list[dict[str, object]]:
    return [dict(notice.fields) for notice in of(Notice, driver.effects) if notice.event == "records_expired"]


def expire_run(driver: Driver) -> None:
    run = driver.runs[-1]
    driver.finish(run, RunResult(expired=run.records))


def test_a_minute_has_one_line_with_the_number_and_the_first_offset() -> None:
    driver = assigned(A)
    for first in range(0, 30, 10):
        driver.fetch(A, *range(first, first + 10))
        expire_run(driver)
    assert lines(driver) == [{"partition": "orders-0", "records": 10, "offset": 0}]
    driver.step(events.Tick(), after_ms=60_000)
    assert lines(driver)[1:] == [{"partition": "orders-0", "records": 20, "offset": 10}]
    driver.step(events.Tick(), after_ms=120_000)
    assert len(lines(driver)) == 2, "a quiet minute has no line"
    driver.fetch(A, 30)
    expire_run(driver)
    assert len(lines(driver)) == 3, "the next one is told at once"
    assert sum(len(effect.records) for effect in of(Expired, driver.effects)) == 31


def test_what_was_not_told_yet_is_told_when_the_partition_goes() -> None:
    for goes in (events.Revoked([A]), events.Lost([A]), events.SeekRequested(A, 0), events.Closed()):
        driver = assigned(A)
        for first in (0, 10):
            driver.fetch(A, *range(first, first + 10))
            expire_run(driver)
        driver.step(goes)
        assert [line["records"] for line in lines(driver)] == [10, 10]


def test_a_retry_that_would_come_too_late_is_not_waited_for() -> None:
    driver = assigned(A, failures=policy(Skip()))
    fetch_expiring(driver, 0, in_ms=10_000)
    driver.fail(0, BOOM)
    assert driver.session.position(A) == 1
    assert [line["error"] for line in lines(driver)] == ["RuntimeError: boom"]

    driver = assigned(A, failures=policy(Skip()))
    fetch_expiring(driver, 0, in_ms=10_001)
    driver.fail(0, BOOM)
    assert driver.session.position(A) == 0, "ten seconds later there is still time"


def test_its_dead_letter_is_of_the_kind_expired_and_has_the_error_that_it_failed_with() -> None:
    driver = assigned(A, failures=policy(Dead("too old")))
    fetch_expiring(driver, 0, in_ms=500)
    driver.fail(0, BOOM)
    (letter,) = of(WriteDeadLetter, driver.effects)
    assert (letter.reason.kind, letter.reason.error_type, letter.reason.attempts) == ("expired", "RuntimeError", 1)
    assert "boom" in letter.reason.stack_trace
    assert driver.session.position(A) == 0, "not before it is acknowledged"
    driver.step(events.WriteAcknowledged(A, letter.epoch, 0))
    assert driver.session.position(A) == 1


def test_the_same_before_a_retry_topic() -> None:
    retry_topics = RetryTopics(delays_s=(60,))
    failures = replace(policy(Skip(), retry_topics=retry_topics), retry=RetryPolicy(max_attempts=1))
    for in_ms, writes in ((60_000, 0), (60_001, 1)):
        driver = Driver(failures=failures, retry_chains={"orders": ("orders.g.retry.1",)})
        line = [A, A._replace(topic="orders.g.retry.1")]
        driver.step(events.Assigned(line))
        driver.step(events.RetryPositionsFound(line, dict.fromkeys(line, (0, 0))))
        fetch_expiring(driver, 0, in_ms=in_ms)
        driver.fail(0, RETRY)
        assert len(of(WriteRetry, driver.effects)) == writes


def test_expired_records_cost_nothing_of_the_budget_and_earn_nothing() -> None:
    budget = DeadLetterBudget(burst=1, per_success=1, every_s=1_000)
    driver = assigned(A, failures=policy(Dead("too old")), budget=budget)
    for offset in range(20):
        driver.fetch(A, offset, key=str(offset).encode())
        run = driver.runs[-1]
        driver.finish(run, RunResult(done=(), failures=[(run.records[0], LATE)]))
    assert len(of(WriteDeadLetter, driver.effects)) == 20
    assert not [notice for notice in of(Notice, driver.effects) if notice.event == "record_dead_lettered"]

    driver = assigned(A, budget=budget)
    driver.fetch(A, 0)
    driver.fail(0, Failure.of_outcome(Dead("bad")))  # the only token
    for offset in range(1, 20):
        driver.fetch(A, offset)
        expire_run(driver)
    driver.fetch(A, 20)
    driver.fail(0, Failure.of_outcome(Dead("bad")))
    assert [notice.event for notice in of(Notice, driver.effects)][-1] == "dead_letter_budget_spent"


def test_a_record_expires_in_its_retry_topic_with_the_story_it_had() -> None:
    failures = replace(
        policy(Dead("too old"), retry_topics=RetryTopics(delays_s=(5,))), retry=RetryPolicy(max_attempts=1)
    )
    driver = Driver(failures=failures, retry_chains={"orders": ("orders.g.retry.1",)})
    retry = A._replace(topic="orders.g.retry.1")
    driver.step(events.Assigned([A, retry]))
    driver.step(events.RetryPositionsFound([A, retry], dict.fromkeys((A, retry), (0, 0))))
    fetch_expiring(driver, 0, in_ms=6_000)
    driver.fail(0, BOOM)
    (write,) = of(WriteRetry, driver.effects)
    built = write.build()
    driver.step(events.WriteAcknowledged(A, write.epoch, 0))
    record: Record[Any] = Record(*retry, 0, 0, built.key, built.value, list(built.headers), built.key, built.value)
    driver.step(events.Fetched(retry, [record], 10))
    driver.step(events.Tick(), after_ms=7_000)
    run = driver.runs[-1]
    driver.finish(run, RunResult(done=(), failures=[(run.records[0], LATE)]))
    (letter,) = of(WriteDeadLetter, driver.effects)
    assert (letter.reason.kind, letter.reason.attempts) == ("expired", 1)
    assert letter.reason.message == "too old; it had failed with: boom"
