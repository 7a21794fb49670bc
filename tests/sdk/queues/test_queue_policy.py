"""What becomes of a job after an attempt."""

from __future__ import annotations

from random import Random

from ottla.app.queue.job_run import JobRun
from ottla.app.queue.queue_policy import Accept, QueuePolicy, RejectWithDeadLetter, Release, WaitUntil
from ottla.consumer.model.run import RunResult
from ottla.failures.budget import DeadLetterBudget
from ottla.failures.exceptions import Failure
from ottla.failures.failure import FailurePolicy
from ottla.failures.outcomes import Dead, Retry, Skip
from ottla.failures.retry import RetryPolicy
from ottla.queues.core.acknowledgements import Place
from ottla.queues.core.lease import Lease
from ottla.records import Record
from ottla.topics import TopicPartition

NOW_MS, WALL_MS = 1_000, 1_700_000_000_000
FAILED = Failure(outcome=Retry(), error_type="ValueError", message="no")


def run_of(delivery_count: int = 1) -> JobRun:
    record = Record(
        topic="jobs", partition=0, offset=7, timestamp_ms=1, key=None, value=b"v", headers=[("h", b"1")],
        raw_key=None, raw_value=b"v",
    )  # fmt: skip
    lease = Lease(
        topic_partition=TopicPartition("jobs", 0),
        place=Place(b"t" * 16, 0),
        node=1,
        offset=7,
        record=record,
        delivery_count=delivery_count,
        acquired_ms=NOW_MS,
        lock_ms=30_000,
    )
    return JobRun(lease, route="job", now_ms=NOW_MS)


def policy(*, max_attempts: int = 3, budget: DeadLetterBudget | None = None) -> QueuePolicy:
    failures = FailurePolicy(
        retry=RetryPolicy(max_attempts=max_attempts, initial_s=1, jitter=0), dead_letter_topic="dead"
    )
    return QueuePolicy(
        failures, group="g", max_job_ms=60_000, budget=budget, random=Random(1), now_ms=NOW_MS
    )  # fmt: skip


def judged(made: QueuePolicy, run: JobRun, failure: Failure) -> object:
    result = RunResult(done=(), failures=[(run.records[0], failure)])
    return made.judge(run, result, NOW_MS, WALL_MS)[0]


def test_a_job_that_was_handled_is_accepted_and_one_that_was_not_begun_is_released() -> None:
    run = run_of()
    assert policy().judge(run, RunResult(), NOW_MS, WALL_MS)[0] == Accept()
    untouched = RunResult(done=(), untouched=run.records)
    assert policy().judge(run, untouched, NOW_MS, WALL_MS)[0] == Release()


def test_a_skipped_job_is_accepted() -> None:
    assert judged(policy(), run_of(), Failure(outcome=Skip())) == Accept()


def test_a_retry_waits_here_and_the_last_attempt_is_followed_by_a_dead_letter() -> None:
    made, run = policy(), run_of()
    assert judged(made, run, FAILED) == WaitUntil(NOW_MS + 1_000)
    assert judged(made, run, FAILED) == WaitUntil(NOW_MS + 2_000)
    verdict = judged(made, run, FAILED)
    assert isinstance(verdict, RejectWithDeadLetter)
    letter = verdict.dead_letter.build()
    assert letter.value == b"v"
    headers = dict(letter.headers)
    assert headers["h"] == b"1"
    assert headers["ottla-dlq-attempts"] == b"3"
    assert headers["ottla-dlq-error-message"] == b"no"


def test_attempts_of_other_members_count() -> None:
    assert isinstance(judged(policy(), run_of(delivery_count=2), FAILED), WaitUntil)
    verdict = judged(policy(), run_of(delivery_count=3), FAILED)
    assert isinstance(verdict, RejectWithDeadLetter)
    assert verdict.dead_letter.reason.attempts == 3


def test_a_wait_is_not_longer_than_an_attempt_may_last() -> None:
    hour = Failure(outcome=Retry(after_s=3_600))
    assert judged(policy(), run_of(), hour) == WaitUntil(NOW_MS + 60_000)


def test_an_outage_costs_no_attempt() -> None:
    made, run = policy(max_attempts=1), run_of()
    for _ in range(20):
        assert isinstance(judged(made, run, Failure(outcome=Retry(), is_outage=True)), WaitUntil)


def test_dead_is_a_dead_letter_at_once() -> None:
    assert isinstance(judged(policy(), run_of(), Failure(outcome=Dead("bad"))), RejectWithDeadLetter)


def test_without_budget_the_job_waits_and_keeps_its_attempts() -> None:
    made = policy(max_attempts=1, budget=DeadLetterBudget(burst=1, every_s=10))
    assert isinstance(judged(made, run_of(), FAILED), RejectWithDeadLetter)
    run = run_of()
    assert judged(made, run, FAILED) == WaitUntil(NOW_MS + 10_000)
    assert run.job.failed == 0


def test_an_attempt_that_timed_out_is_released_and_the_last_one_makes_a_dead_letter() -> None:
    assert policy().timed_out(run_of(), NOW_MS, WALL_MS)[0] == Release()
    verdict = policy().timed_out(run_of(delivery_count=3), NOW_MS, WALL_MS)[0]
    assert isinstance(verdict, RejectWithDeadLetter)
    assert verdict.dead_letter.reason.error_type == "JobTimedOut"


def test_a_dead_letter_that_is_not_acknowledged_is_written_again_ever_later() -> None:
    made, run = policy(), run_of()
    waits = [made.write_failed(run, 0, "refused")[0].due_ms for _ in range(12)]
    assert 0 < waits[0] <= 400
    assert max(waits) <= 15_000
    assert waits[-1] > 7_000


def test_an_attempt_that_killed_its_worker_counts_as_failed() -> None:
    died = RunResult(done=(), fatal=Failure(outcome=Retry(), error_type="shop.Dying", message="out of memory"))
    assert policy().judge(run_of(1), died, NOW_MS, WALL_MS)[0] == Release(), "the next attempt is another member's"
    last, notices = policy().judge(run_of(3), died, NOW_MS, WALL_MS)
    assert isinstance(last, RejectWithDeadLetter), "the broker would give it up without a dead letter"
    assert last.dead_letter.reason.attempts == 3
    assert not notices
    cancelled = RunResult(
        done=(), fatal=Failure(outcome=Retry(), error_type="asyncio.exceptions.CancelledError", message="")
    )
    assert policy().judge(run_of(3), cancelled, NOW_MS, WALL_MS)[0] == Release()


def test_the_brokers_last_delivery_is_a_dead_letter() -> None:
    verdict, _ = policy().deliveries_spent(run_of(5), NOW_MS, WALL_MS)
    assert isinstance(verdict, RejectWithDeadLetter)
    assert verdict.dead_letter.reason.error_type == "DeliveriesSpent"
    assert verdict.dead_letter.reason.attempts == 5
