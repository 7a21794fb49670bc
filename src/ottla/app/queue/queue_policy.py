"""What becomes of a job after an attempt: pure, and by the same failure policy as that of handlers.

| result of the attempt | the record |
|---|---|
| done, skipped, expired | is accepted |
| failed, attempts left | waits for the next attempt, with its lease |
| given up | its dead letter is written; when that is acknowledged, it is rejected |
| given up, the budget is spent | waits until there is budget, and is handled again |
| not begun, or cancelled | is released |
| delivered for the last time by the broker's limit | a dead letter: it is not handled |
| its worker died | the attempt failed: a dead letter if it was the last one, else the record is released |
"""

from __future__ import annotations

from random import Random
from typing import Final, TypeAlias

from ottla.app.queue.job_run import JobRun
from ottla.consumer.model.effects import Notice
from ottla.consumer.model.failed_writes import WriteDeadLetter
from ottla.consumer.model.run import RunResult
from ottla.failures.budget import BudgetMeter, DeadLetterBudget
from ottla.failures.dead_letter import DeadLetterReason
from ottla.failures.exceptions import Failure
from ottla.failures.failure import DeadLetter, Expire, FailurePolicy, Finish, Postpone, RetryAt, Stop, unless_expired
from ottla.failures.outcomes import Dead, Retry
from ottla_wire.facts import positional_fact

_LONGEST_WRITE_WAIT_MS: Final = 15_000
_FIRST_WRITE_WAIT_MS: Final = 200


@positional_fact
class Accept:
    """The record is done."""


@positional_fact
class Release:
    """Another attempt, by any member, at once."""


@positional_fact
class WaitUntil:
    """The next attempt is here, not before `due_ms`."""

    due_ms: int


@positional_fact
class RejectWithDeadLetter:
    """Write this dead letter, then reject the record."""

    dead_letter: WriteDeadLetter


@positional_fact
class Refuse:
    """What was declared is wrong: keep the lease, and lease nothing more."""

    reason: str


Verdict: TypeAlias = Accept | Release | WaitUntil | RejectWithDeadLetter | Refuse


def is_success(result: RunResult) -> bool:
    """Return whether the job is done, skipped or expired, so that it is accepted."""
    return not result.failures and not result.untouched and result.fatal is None


class QueuePolicy:
    """The verdicts of one queue, and its dead letter budget. Not thread-safe."""

    def __init__(
        self,
        failures: FailurePolicy,
        *,
        group: str,
        max_job_ms: int,
        budget: DeadLetterBudget | None,
        random: Random,
        now_ms: int,
    ) -> None:
        self._failures = failures
        self._group = group
        self._max_job_ms = max_job_ms
        self._meter = None if budget is None else BudgetMeter(budget, now_ms)
        self._random = random

    def judge(self, run: JobRun, result: RunResult, now_ms: int, wall_ms: int) -> tuple[Verdict, list[Notice]]:
        """Return the verdict on a handled record, and the notices to log."""
        fatal = result.fatal
        if fatal is not None and not fatal.error_type.endswith("CancelledError"):
            # Released without a count it would be delivered up to the broker's limit, and then be lost.
            verdict, notices = self.failed(run, fatal, now_ms, wall_ms)
            return (Release() if isinstance(verdict, WaitUntil) else verdict), notices
        if fatal is not None or result.untouched:
            return Release(), []
        if not result.failures:
            self.succeeded()
            return Accept(), []
        return self.failed(run, result.failures[0][1], now_ms, wall_ms)

    def succeeded(self) -> None:
        """Take in that a job was done: it pays into the budget of dead letters."""
        if self._meter is not None:
            self._meter.succeeded(1)

    def timed_out(self, run: JobRun, now_ms: int, wall_ms: int) -> tuple[Verdict, list[Notice]]:
        """Return what becomes of a record whose attempt lasted too long."""
        seconds = self._max_job_ms / 1_000
        failure = Failure(
            outcome=Retry(),
            error_type="JobTimedOut",
            message=f"the handler did not return within max_job_s={seconds:g}",
        )
        verdict, notices = self.failed(run, failure, now_ms, wall_ms)
        return (Release() if isinstance(verdict, WaitUntil) else verdict), notices

    def deliveries_spent(self, run: JobRun, now_ms: int, wall_ms: int) -> tuple[Verdict, list[Notice]]:
        """Return the verdict on a record that the broker delivers for the last time: a dead letter is written. With the
        notices to log."""
        reason = (
            f"delivery {run.lease.delivery_count} is the broker's last, and no attempt had a result: "
            "as when each ended its process"
        )
        failure = Failure(outcome=Dead(reason), error_type="DeliveriesSpent", message=reason)
        return self.failed(run, failure, now_ms, wall_ms)

    def failed(self, run: JobRun, failure: Failure, now_ms: int, wall_ms: int) -> tuple[Verdict, list[Notice]]:
        """Return what becomes of a record that failed."""
        job, record = run.job, run.record
        if not job.failed and not job.outages:
            job.first_failed_ms, job.first_failed_wall_ms = now_ms, wall_ms
        if failure.is_outage:
            job.outages += 1
        elif not failure.is_expiry:
            job.failed += 1
        before = max(1, run.lease.delivery_count) - 1
        if failure.is_expiry:
            return self._dead_letter(run, failure, now_ms, wall_ms, is_paid=False)
        decision = self._failures.decide(
            failure,
            attempts=before + job.failed,
            outages=job.outages,
            now_ms=now_ms,
            random=self._random,
            elapsed_ms=now_ms - job.first_failed_ms,
        )
        expires_ms = self._failures.expiry.expires_ms(record)
        match unless_expired(decision, now_ms=now_ms, wall_ms=wall_ms, expires_ms=expires_ms):
            case RetryAt(due_ms):
                due_ms = min(due_ms, now_ms + self._max_job_ms)
                return WaitUntil(due_ms), [self.failure_notice("record_retried", run, failure, in_ms=due_ms - now_ms)]
            case DeadLetter():
                return self._dead_letter(run, failure, now_ms, wall_ms, is_paid=True)
            case Expire() if isinstance(self._failures.expiry.outcome, Dead):
                expired = Failure.of_expiry(self._failures.expiry.outcome)
                return self._dead_letter(run, expired, now_ms, wall_ms, is_paid=False)
            case Stop(reason):
                return Refuse(reason), [self.failure_notice("record_retried", run, failure, in_ms=0)]
            case Finish() | Expire() | Postpone():
                return Accept(), [self.failure_notice("record_skipped", run, failure)]

    def write_failed(self, run: JobRun, now_ms: int, error: str) -> tuple[WaitUntil, Notice]:
        """Return when a dead letter that was not acknowledged is written again."""
        job, record = run.job, run.record
        job.writes += 1
        wait_ms = min(_LONGEST_WRITE_WAIT_MS, _FIRST_WRITE_WAIT_MS << min(job.writes, 10))
        wait_ms = round(wait_ms * (1 - 0.5 * self._random.random()))
        fields = {"partition": str(run.topic_partition), "offset": record.offset, "error": error, "writes": job.writes}
        return WaitUntil(now_ms + wait_ms), Notice("dead_letter_write_failed", "warning", fields)

    def written(self, run: JobRun, reason: DeadLetterReason, topic: str) -> Notice:
        """Return the log event of a dead letter that was acknowledged."""
        fields: dict[str, object] = {
            **_place(run),
            "kind": reason.kind,
            "error": f"{reason.error_type}: {reason.message}" if reason.error_type else reason.message,
            "attempts": reason.attempts,
            "dead_letter_topic": topic,
        }
        if reason.stack_trace:
            fields["exception"] = reason.stack_trace
        return Notice("record_dead_lettered", "warning", fields)

    def _dead_letter(
        self, run: JobRun, failure: Failure, now_ms: int, wall_ms: int, *, is_paid: bool
    ) -> tuple[Verdict, list[Notice]]:
        job = run.job
        free_ms = self._meter.take(now_ms) if self._meter is not None and is_paid else None
        if free_ms is not None:
            job.failed = max(0, job.failed - 1)
            return WaitUntil(free_ms), [
                self.failure_notice("dead_letter_budget_spent", run, failure, level="error", in_ms=free_ms - now_ms)
            ]
        topic = self._failures.dead_letter_topic
        assert topic is not None, "a queue has a dead letter topic"
        reason = DeadLetterReason.of(
            failure.without_error(),
            attempts=max(1, run.lease.delivery_count - 1 + job.failed),
            group=self._group,
            first_failure_ms=job.first_failed_wall_ms or wall_ms,
            dead_lettered_ms=wall_ms,
        )
        job.dead_letter = WriteDeadLetter(run.topic_partition, 0, run.record, topic, reason)
        return RejectWithDeadLetter(job.dead_letter), []

    @staticmethod
    def failure_notice(
        event: str, run: JobRun, failure: Failure, *, level: str = "warning", **fields: object
    ) -> Notice:
        """Return a log event about a record that failed."""
        attempts = max(1, run.lease.delivery_count) - 1 + run.job.failed
        return Notice(
            event,
            level,
            {**_place(run), "kind": failure.kind, "error": failure.summary, "attempts": attempts, **fields},
        )


def _place(run: JobRun) -> dict[str, object]:
    return {"partition": str(run.topic_partition), "offset": run.record.offset}
