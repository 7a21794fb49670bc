"""Lag, ages, buffers and pauses as figures, by a clock that stands still."""

from __future__ import annotations

from typing import Any

from session_driver import A, B, Driver, measure_at_the_end_of, measure_of

from ottla.consumer.model import events
from ottla.consumer.model.effects import LookAtLogs
from ottla.failures import Failure, Retry
from ottla.records import Record, TopicPartition
from ottla.telemetry.metrics.measurements import PartitionMeasure, WaitingRetry

WALL_MS = 1_700_000_000_000


def measured(driver: Driver, partition: Any = A) -> PartitionMeasure:
    measure = measure_of(driver.session, driver.now_ms)
    (found,) = [each for each in measure.partitions if each.topic_partition == partition]
    return found


def look(driver: Driver, end: int, *, position: int | None, after_ms: int = 0, partition: Any = A) -> None:
    """The log is looked at, and ends there."""
    epoch = driver.session.epoch_of(partition)
    assert epoch is not None
    asked = events.LookedAt({partition: epoch}, {} if position is None else {partition: position})
    driver.step(asked.seen({partition: (b"\1" * 16, 0, end)}), after_ms=after_ms)


def fetch(driver: Driver, *offsets: int, timestamp_ms: int, after_ms: int = 0) -> None:
    records: list[Record[Any]] = [
        Record("orders", 0, each, timestamp_ms, b"k", b"v", [], b"k", b"v") for each in offsets
    ]
    driver.step(events.Fetched(A, records, 10 * len(records)), after_ms=after_ms)


def assigned(committed: int = 0) -> Driver:
    driver = Driver()
    driver.step(events.Assigned([A], {A: (committed, "")}))
    return driver


def test_lag_is_not_known_before_the_log_was_looked_at() -> None:
    driver = assigned()
    fetch(driver, 0, 1, timestamp_ms=WALL_MS)

    assert (measured(driver).lag_records, measured(driver).lag_s) == (None, None)


def test_lag_is_not_known_while_a_partition_has_no_leader() -> None:
    driver = Driver()
    driver.step(events.Assigned([A, B], {A: (10, ""), B: (10, "")}))
    epochs = {name: epoch for name in (A, B) if (epoch := driver.session.epoch_of(name)) is not None}
    asked = events.LookedAt(epochs, {})
    both = {A: (b"\1" * 16, 0, 100), B: (b"\1" * 16, 0, 100)}
    driver.step(asked.seen(both))
    assert [measured(driver, each).lag_records for each in (A, B)] == [90, 90]
    driver.step(asked.seen({B: both[B]}))
    assert [measured(driver, each).lag_records for each in (A, B)] == [None, 90]
    driver.step(asked.seen({}))
    assert measured(driver, B).lag_records == 90, "nobody answered this once"
    driver.step(asked.seen(both))
    assert measured(driver).lag_records == 90


def test_lag_is_what_is_not_done_up_to_the_end_of_the_log() -> None:
    driver = assigned(committed=10)
    look(driver, 100, position=10)
    assert measured(driver).lag_records == 90

    fetch(driver, *range(10, 30), timestamp_ms=WALL_MS)
    assert measured(driver).lag_records == 90
    driver.finish()
    assert measured(driver).lag_records == 70


def test_lag_in_seconds_is_the_age_of_the_oldest_record_that_is_not_done() -> None:
    driver = assigned()
    look(driver, 4, position=0)
    fetch(driver, 0, 1, timestamp_ms=WALL_MS - 60_000)
    fetch(driver, 2, 3, timestamp_ms=WALL_MS - 20_000)
    assert measured(driver).lag_s == 60

    driver.finish(driver.runs[0])
    driver.now_ms += 5_000
    assert measured(driver).lag_s == 25
    driver.finish()
    look(driver, 4, position=4)
    assert (measured(driver).lag_records, measured(driver).lag_s) == (0, 0)


def test_of_records_that_are_not_fetched_the_age_counts_from_when_they_were_seen() -> None:
    driver = assigned()
    look(driver, 0, position=0)
    driver.step(events.PauseRequested([A]))
    look(driver, 50, position=0, after_ms=5_000)
    driver.now_ms += 7_000
    look(driver, 80, position=0, after_ms=5_000)

    paused = measured(driver)
    assert (paused.lag_records, paused.lag_s, paused.paused_for) == (80, 12, ("user",))


def test_a_log_that_ends_in_markers_has_no_lag_once_the_client_has_passed_them() -> None:
    driver = assigned()
    fetch(driver, 0, 1, timestamp_ms=WALL_MS)
    driver.finish()
    look(driver, 3, position=3)

    assert measured(driver).lag_records == 0


def test_a_record_that_waits_for_its_retry_keeps_its_age_and_its_lag() -> None:
    driver = assigned()
    look(driver, 3, position=0)
    fetch(driver, 0, 1, 2, timestamp_ms=WALL_MS)
    driver.now_ms += 1_000
    driver.fail(0, Failure.of_outcome(Retry(after_s=60)))
    driver.now_ms += 9_000

    waiting = measured(driver)
    assert (waiting.lag_records, waiting.lag_s, waiting.oldest_unfinished_s) == (3, 10, 9)


def test_a_retry_in_place_is_told_with_its_time_until_it_is_due() -> None:
    driver = assigned()
    fetch(driver, 5, 6, timestamp_ms=WALL_MS)
    driver.now_ms += 1_000
    failed_at = driver.now_ms
    driver.fail(0, Failure.of_outcome(Retry(after_s=60)))

    waiting = measured(driver)
    due_ms = failed_at + 60_000 + WALL_MS
    assert waiting.retries == (WaitingRetry(offset=5, records=1, attempts=1, due_ms=due_ms),)
    assert waiting.retries_waiting == 1

    driver.step(events.Tick(), after_ms=60_000)
    assert (measured(driver).retries, measured(driver).retries_waiting) == ((), 0)


def test_what_is_buffered_and_in_flight_is_told() -> None:
    driver = Driver()
    driver.step(events.Assigned([A, B]))
    driver.fetch(A, 0, 1, 2)
    driver.fetch(B, 0)

    measure = measure_of(driver.session, driver.now_ms)
    assert {each.topic_partition: (each.buffered_records, each.buffered_bytes) for each in measure.partitions} == {
        A: (3, 30),
        B: (1, 10),
    }
    assert measure.runs_in_flight == {"handler": 1}
    assert [effect for effect in driver.effects if isinstance(effect, LookAtLogs)]


def test_five_thousand_partitions_are_measured_a_hundred_at_a_time() -> None:
    names = [TopicPartition("orders", number) for number in range(5_000)]
    driver = Driver()
    driver.step(events.Assigned(names, dict.fromkeys(names, (0, ""))))

    steps = driver.session.measures(driver.now_ms)
    assert sum(1 for _ in steps) == 49, "between 50 slices"

    steps = driver.session.measures(driver.now_ms)
    next(steps)
    driver.step(events.Revoked(names[150:]))
    assert [each.topic_partition for each in measure_at_the_end_of(steps).partitions] == names[:150]
