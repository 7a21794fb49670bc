"""Dead letters event by event: their order, what is logged and when, what health says, and those that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
from session_driver import BOOM, DEAD, A, Driver, assigned, of

from ottla.consumer.commit.commits import AtMostOnce
from ottla.consumer.model import events
from ottla.consumer.model.effects import Commit, Notice
from ottla.consumer.model.failed_writes import WriteDeadLetter
from ottla.consumer.model.run import RunResult
from ottla.consumer.partitions.lanes import Ordering
from ottla.failures import Failure, FailurePolicy, Retry, RetryPolicy
from ottla.failures.dead_letter import Form

AT_ONCE = FailurePolicy(retry=RetryPolicy(max_attempts=1), dead_letter_topic="dead")


def written(driver: Driver, letter: WriteDeadLetter, form: Form = Form.WHOLE) -> list[Any]:
    return driver.step(
        events.WriteAcknowledged(letter.topic_partition, letter.epoch, letter.record.offset, form), after_ms=1
    )


def refused(driver: Driver, letter: WriteDeadLetter) -> list[Any]:
    return driver.step(events.WriteFailed(letter.topic_partition, letter.epoch, letter.record.offset, "no leader"))


def notices(effects: list[Any], event: str) -> list[Notice]:
    return [notice for notice in of(Notice, effects) if notice.event == event]


def offsets(letters: list[WriteDeadLetter]) -> list[int]:
    return [letter.record.offset for letter in letters]


class TestOrder:
    @pytest.mark.parametrize("ordering", [Ordering.PARTITION, Ordering.KEY])
    def test_dead_letters_of_one_key_are_written_one_after_the_other(self, ordering: Ordering) -> None:
        driver = assigned(failures=AT_ONCE, ordering=ordering, concurrency=4)
        driver.fetch(A, 0, 1)
        driver.fail(0, DEAD)
        (first,) = of(WriteDeadLetter, driver.effects)
        driver.fail(0, DEAD)
        assert offsets(of(WriteDeadLetter, driver.effects)) == [0], "the second waits"

        refused(driver, first)
        again = of(WriteDeadLetter, driver.step(events.Tick(), after_ms=1_000))
        assert offsets(again) == [0], "what is tried again is not overtaken"
        (second,) = of(WriteDeadLetter, written(driver, again[0]))
        assert second.record.offset == 1
        written(driver, second)
        assert driver.session.position(A) == 2

    @pytest.mark.parametrize(
        ("ordering", "key"), [(Ordering.UNORDERED, b"k"), (Ordering.PARTITION, None), (Ordering.KEY, None)]
    )
    def test_where_there_is_no_order_they_do_not_wait(self, ordering: Ordering, key: bytes | None) -> None:
        driver = assigned(failures=AT_ONCE, ordering=ordering)
        driver.fetch(A, 0, 1, key=key)
        driver.fail(0, DEAD)
        driver.fail(0, DEAD)
        assert offsets(of(WriteDeadLetter, driver.effects)) == [0, 1]

    def test_those_that_wait_are_written_before_the_partition_is_given_away(self) -> None:
        driver = assigned(failures=AT_ONCE)
        driver.fetch(A, 0, 1)
        driver.fail(0, DEAD)
        driver.fail(0, DEAD)
        driver.step(events.Revoking([A]))
        assert not driver.session.is_quiet([A])
        (second,) = of(WriteDeadLetter, written(driver, of(WriteDeadLetter, driver.effects)[0]))
        assert not driver.session.is_quiet([A])
        written(driver, second)
        assert driver.session.is_quiet([A])
        assert of(Commit, driver.step(events.Revoked([A])))[0].offsets[A][0] == 2

    def test_a_resume_goes_on_with_the_first_and_keeps_the_others_behind_it(self) -> None:
        driver = assigned(failures=AT_ONCE)
        driver.fetch(A, 0, 1)
        driver.fail(0, DEAD)
        driver.fail(0, DEAD)
        (first,) = of(WriteDeadLetter, driver.effects)
        for _ in range(5):
            refused(driver, first)
            driver.step(events.Tick(), after_ms=60_000)
        assert "stopped at offset" in driver.session.health(driver.now_ms).problems[0]
        assert offsets(of(WriteDeadLetter, driver.step(events.ResumeRequested()))) == [0]


class TestWhatIsLogged:
    def test_a_dead_letter_is_logged_when_it_is_acknowledged_and_not_before(self) -> None:
        driver = assigned(failures=AT_ONCE)
        driver.fetch(A, 0)
        driver.fail(0, BOOM)
        assert notices(driver.effects, "record_dead_lettered") == []
        (letter,) = of(WriteDeadLetter, driver.effects)
        (notice,) = notices(written(driver, letter), "record_dead_lettered")
        assert (notice.fields["offset"], notice.fields["attempts"]) == (0, 1)
        assert notice.fields["dead_letter_topic"] == "dead"

    def test_a_failure_is_logged_with_the_traceback_of_its_handler_as_text(self) -> None:
        driver = assigned()
        driver.fetch(A, 0)
        driver.fail(0, BOOM)
        (notice,) = notices(driver.effects, "record_retried")
        assert notice.fields["exception"] == BOOM.stack_trace
        assert "RuntimeError: boom" in str(notice.fields["exception"])
        assert "exc_info" not in notice.fields, "renderers print local variables, and so payloads, of that"

    def test_one_error_of_a_batch_is_printed_once(self) -> None:
        driver = assigned(is_batch=True)
        driver.fetch(A, 0, 1, 2)
        (run,) = driver.runs
        driver.finish(run, RunResult(done=(), failures=[(one, BOOM) for one in run.records], is_batch_failure=True))
        traces = [notice.fields.get("exception") for notice in notices(driver.effects, "record_retried")]
        assert traces == [BOOM.stack_trace, None, None]

    def test_a_partition_that_stops_shows_where_the_handler_failed(self) -> None:
        driver = assigned(failures=FailurePolicy(retry=RetryPolicy(max_attempts=1)))
        driver.fetch(A, 0)
        driver.fail(0, BOOM)
        (notice,) = notices(driver.effects, "partition_stopped")
        assert notice.fields["exception"] == BOOM.stack_trace

    def test_so_does_a_record_that_is_dropped_where_it_may_be_handled_once_only(self) -> None:
        driver = assigned(
            failures=FailurePolicy(retry=RetryPolicy(max_attempts=1)), is_at_most_once=True, commits=AtMostOnce()
        )
        driver.fetch(A, 0)
        driver.step(events.CommitSucceeded({A: 1}))
        driver.fail(0, BOOM)
        (notice,) = notices(driver.effects, "record_dropped")
        assert notice.fields["exception"] == BOOM.stack_trace

    def test_what_was_returned_has_no_traceback(self) -> None:
        driver = assigned()
        driver.fetch(A, 0)
        driver.fail(0, Failure.of_outcome(Retry()))
        assert "exception" not in notices(driver.effects, "record_retried")[0].fields


class TestWritesThatFail:
    def test_the_first_failed_write_makes_the_app_unready_and_an_acknowledged_one_ready_again(self) -> None:
        driver = assigned(failures=AT_ONCE)
        driver.fetch(A, 0)
        driver.fail(0, DEAD)
        (letter,) = of(WriteDeadLetter, driver.effects)
        assert driver.session.health(driver.now_ms).is_ready
        refused(driver, letter)
        health = driver.session.health(driver.now_ms)
        assert not health.is_ready
        assert health.is_alive
        assert health.problems == ("orders-0: offset 0 could not be written to dead: no leader",)

        written(driver, letter)
        assert driver.session.health(driver.now_ms).is_ready

    def test_a_claim_is_an_error_in_the_log_that_says_where_the_value_is(self) -> None:
        driver = assigned(failures=AT_ONCE)
        driver.fetch(A, 0)
        driver.fail(0, DEAD)
        effects = written(driver, of(WriteDeadLetter, driver.effects)[0], Form.CLAIM)
        (claim,) = notices(effects, "dead_letter_without_value")
        assert claim.level == "error"
        assert (claim.fields["partition"], claim.fields["offset"], claim.fields["value_bytes"]) == ("orders-0", 0, 1)
        (notice,) = notices(effects, "record_dead_lettered")
        assert notice.fields["form"] == "without value"
        assert driver.session.position(A) == 1
