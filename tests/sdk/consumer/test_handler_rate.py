"""`max_rate`: a token bucket decides when records are handed out, and nothing that waits for it is lost or late."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_driver import BOOM, RETRY, A, B, Driver, assigned, measure_of, of, offsets_of

from ottla.commit_marks import is_marked_limited
from ottla.consumer.commit.offset_metadata import decode_finished
from ottla.consumer.model import events
from ottla.consumer.model.effects import Commit, PausePartitions
from ottla.consumer.model.run import RunResult
from ottla.consumer.partitions.flow import FlowLimits
from ottla.consumer.partitions.handler_rate import Rate, RateMeter
from ottla.consumer.partitions.lanes import Ordering
from ottla.errors import ConfigError

RATES = st.builds(
    Rate,
    st.floats(0.01, 50_000),
    per_s=st.sampled_from([0.5, 1.0, 60.0]),
    burst=st.none() | st.integers(1, 1_000),
)


@given(RATES, st.lists(st.integers(0, 400), min_size=1, max_size=60), st.integers(0, 10**12))
def test_no_span_has_more_than_the_burst_and_the_rate(rate: Rate, waits_ms: list[int], start_ms: int) -> None:
    meter, now_ms = RateMeter(rate, start_ms), start_ms
    handed_out: list[tuple[int, int]] = []
    for wait_ms in waits_ms:
        now_ms += wait_ms
        allowed = meter.allowed(now_ms)
        meter.spend(allowed)
        handed_out.append((now_ms, allowed))
    for first, (since_ms, _) in enumerate(handed_out):
        total = 0
        for at_ms, records in handed_out[first:]:
            total += records
            assert total <= rate.most_at_once + (at_ms - since_ms) * rate.per_ms + 1e-6


@given(RATES)
def test_whoever_comes_when_he_may_gets_the_rate(rate: Rate) -> None:
    meter, now_ms, records = RateMeter(rate, 0), 0, 0
    for _ in range(200):
        allowed = meter.allowed(now_ms)
        meter.spend(allowed)
        records += allowed
        if not allowed:
            assert meter.resumes_ms > now_ms
            now_ms = meter.resumes_ms
    by_rate = rate.most_at_once + now_ms * rate.per_ms
    lost_to_whole_ms = 100 * rate.per_ms  # half of the steps waited, each for less than a millisecond too long
    assert records >= by_rate - 2 - lost_to_whole_ms - rate.most_at_once
    assert records <= by_rate + 1e-6


@pytest.mark.parametrize("records", [0, -1, math.nan, math.inf, True, "200/s"])
def test_a_rate_that_is_none_is_refused(records: float) -> None:
    with pytest.raises(ConfigError, match="Rate: records must"):
        Rate(records)
    for options in ({"per_s": 0}, {"burst": 0}, {"burst": 1.5}):
        with pytest.raises(ConfigError, match=f"Rate: {next(iter(options))} must"):
            Rate(1, **options)  # type: ignore[arg-type]


def run_for(driver: Driver, until_ms: int) -> list[tuple[int, int]]:
    """Handle each run at once. Returns (when, offset) of each record."""
    handled = []
    while driver.now_ms < until_ms:
        while driver.runs:
            handled += [(driver.now_ms, offset) for offset in offsets_of(driver.runs[-1])]
            driver.finish()
        wakes_ms = min(driver.session.next_wakeup_ms(driver.now_ms), until_ms)
        driver.step(events.Tick(), after_ms=max(1, wakes_ms - driver.now_ms))
    return handled


def test_records_go_out_in_order_at_the_rate() -> None:
    driver = assigned(max_rate=Rate(200, burst=50))
    driver.fetch(A, *range(1_000))
    handled = run_for(driver, 2_000)

    assert [offset for _, offset in handled] == list(range(len(handled)))
    assert sum(at_ms == 0 for at_ms, _ in handled) == 50, "the burst"
    assert 50 + 200 * 2 - 2 <= len(handled) <= 50 + 200 * 2


def test_all_partitions_of_a_handler_share_its_rate_in_turns() -> None:
    driver = assigned(A, B, max_rate=Rate(100, burst=1), concurrency=2)
    driver.fetch(A, *range(500))
    driver.fetch(B, *range(500))
    handled = run_for(driver, 1_000)
    by_a = driver.session.position(A) or 0
    by_b = driver.session.position(B) or 0
    assert by_a + by_b == len(handled)
    assert 98 <= len(handled) <= 101
    assert abs(by_a - by_b) <= 2


def test_a_run_of_a_high_rate_has_many_records() -> None:
    """A run of one record each would cost more than its records."""
    driver = assigned(max_rate=Rate(100_000, burst=10), flow=FlowLimits(high_records=200_000))
    driver.fetch(A, *range(10_000))
    runs = 0
    while driver.runs and driver.now_ms < 50:
        runs += 1
        driver.finish()
        if not driver.runs:
            driver.step(events.Tick(), after_ms=driver.session.next_wakeup_ms(driver.now_ms) - driver.now_ms)
    assert runs * 10 <= (driver.session.position(A) or 0) + 10


def test_retries_count() -> None:
    driver = assigned(max_rate=Rate(1, burst=2))
    driver.fetch(A, 0, 1, 2)
    driver.fail(0, RETRY)  # record 1 is untouched: its token comes back
    assert driver.runs == []
    driver.step(events.Tick(), after_ms=1_000)
    assert offsets_of(driver.runs[-1]) == [0], "one token was left, and another second has passed"
    driver.finish()
    assert offsets_of(driver.runs[-1]) == [1], "2 + 1 tokens, of which the record that failed took two"
    driver.finish()
    assert driver.runs == []
    driver.step(events.Tick(), after_ms=1_000)
    assert offsets_of(driver.runs[-1]) == [2]


def test_records_that_expire_while_they_wait_cost_nothing() -> None:
    driver = assigned(max_rate=Rate(1, burst=3))
    driver.fetch(A, *range(6))
    (run,) = driver.runs
    driver.finish(run, RunResult(done=run.records, expired=run.records))
    assert offsets_of(driver.runs[-1]) == [3, 4, 5]


def test_a_cancelled_run_returns_its_tokens() -> None:
    driver = assigned(max_rate=Rate(1, burst=3), ordering=Ordering.UNORDERED)
    driver.fetch(A, *range(3))
    (run,) = driver.runs
    driver.finish(run, RunResult(done=run.records[:1], untouched=run.records[1:]))
    assert offsets_of(driver.runs[-1]) == [1, 2]


def test_a_batch_is_handed_out_whole_and_the_next_waits_until_it_is_paid_for() -> None:
    driver = assigned(is_batch=True, max_records_per_turn=500, max_rate=Rate(200, burst=20))
    driver.fetch(A, *range(1_000))
    assert len(driver.runs[-1].records) == 500
    driver.finish()
    assert driver.runs == []
    driver.step(events.Tick(), after_ms=2_400)
    assert driver.runs == []
    driver.step(events.Tick(), after_ms=10)
    assert len(driver.runs[-1].records) == 500


def test_what_waits_for_the_rate_is_not_late_and_what_hangs_is() -> None:
    driver = assigned(A, B, max_rate=Rate(1, per_s=600, burst=1))
    driver.fetch(A, 0, 1)
    driver.fetch(B, 0)
    driver.finish()

    for at_ms in (60_001, 300_000, 599_999):
        health = driver.session.health(at_ms)
        assert health.is_ready, health.problems
        assert health.limited == ("handler",)
        assert [each.oldest_unfinished_age_ms for each in health.partitions] == [0, 0]
    driver.step(events.Tick(), after_ms=600_000)
    assert len(driver.runs) == 1, "the next one is with its handler"
    assert driver.session.health(660_000).is_ready
    stuck = driver.session.health(660_001)
    assert not stuck.is_ready
    assert "unfinished for 60 s" in stuck.problems[0]


def test_a_record_that_failed_counts_from_its_first_failure_whatever_it_waits_for() -> None:
    driver = assigned(max_rate=Rate(1, per_s=600, burst=1))
    driver.fetch(A, 0)
    driver.fail(0, BOOM)
    driver.step(events.Tick(), after_ms=61_000)
    assert driver.runs == []
    assert not driver.session.health(driver.now_ms).is_ready


def test_memory_is_bounded_by_pausing_the_fetch() -> None:
    driver = assigned(max_rate=Rate(10), flow=FlowLimits(high_records=100, low_records=50, hold_ms=0))
    offset = fetched_ms = 0
    is_paused = False
    while driver.now_ms < 5_000:
        if not is_paused:
            driver.fetch(A, *range(offset, offset + 50))
            offset += 50
            fetched_ms = driver.now_ms
        is_paused = driver.session._flow.is_paused(A)
        assert driver.session.health(driver.now_ms).partitions[0].buffered_records <= 150
        run_for(driver, driver.now_ms + 50)
    assert of(PausePartitions, driver.effects)
    assert is_paused
    assert fetched_ms < 5_000
    assert driver.session.health(driver.now_ms).is_ready


def test_what_is_not_limited_is_not_called_so() -> None:
    driver = assigned(max_rate=Rate(1_000, burst=100))
    driver.fetch(A, *range(50))
    driver.finish()
    assert driver.session.health(driver.now_ms).limited == ()
    assert measure_of(driver.session, driver.now_ms).limited == {"handler": False}
    driver.fetch(A, *range(50, 500))
    driver.finish()
    assert measure_of(driver.session, driver.now_ms).limited == {"handler": True}
    run_for(driver, 2_500)
    assert measure_of(driver.session, driver.now_ms).limited == {"handler": False}


def test_without_a_rate_nothing_is_said_of_one() -> None:
    driver = assigned()
    driver.fetch(A, *range(500))
    assert measure_of(driver.session, 0).limited == {}
    assert driver.session.health(0).limited == ()


def test_a_commit_says_that_records_wait_and_the_last_one_does_not() -> None:
    driver = assigned(max_rate=Rate(10, burst=2), ordering=Ordering.KEY, concurrency=4)
    for offset in range(40):
        driver.fetch(A, offset, key=b"%d" % offset)
    first, *others = driver.runs
    for run in others:
        driver.finish(run)
    driver.step(events.Tick(), after_ms=5_000)
    (commit,) = of(Commit, driver.effects)
    offset, metadata = commit.offsets[A]
    assert is_marked_limited(metadata)
    assert is_marked_limited(metadata + "\0"), "as the clients commit it"
    assert decode_finished(metadata, offset) == {1}, "what is finished beyond is in it too"
    driver.step(events.CommitSucceeded({A: offset}))
    driver.finish(first)
    driver.effects.clear()
    driver.step(events.Revoked([A]))
    (last,) = of(Commit, driver.effects)
    assert not is_marked_limited(last.offsets[A][1])


def test_a_mark_alone_names_no_finished_offsets() -> None:
    assert decode_finished("ottla1::limited", 7) == frozenset()
    assert not is_marked_limited("somebody's:limited")
    assert not is_marked_limited(None)


def test_a_rate_names_its_arguments_where_one_is_unknown() -> None:
    with pytest.raises(ConfigError, match="per_s"):
        Rate(1, per_second=1)  # type: ignore[call-arg]
