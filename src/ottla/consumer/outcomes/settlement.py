"""Applies the result of a run to its partition: records are settled, given up, or delivered again. No client, no clock.

How it works:

1.  A worker has ended a run. Each record of it is done, has failed, or is untouched (`RunResult`).
2.  Records that are done are settled: their offsets may be committed.
3.  Each failed record is counted, and the handler's failure policy decides about it (`Verdicts.decide`).
4.  Retry: the record waits in its lane until it is due, then it is delivered again, alone.
5.  Give up: the record becomes a dead letter, is written to a retry topic, is dropped on request, or stops its
    partition (`Verdicts.give_up`). A written record is settled when the write is acknowledged (`FailureWriter`).
6.  While the dead letter budget is spent, a record that would be a dead letter is retried instead.
7.  A record that has expired is settled, or becomes a dead letter where that was asked for.
8.  A batch handler fails as a whole, and one bad record must not condemn the others. When the policy gives a batch up,
    each record is delivered once more alone, and only what fails alone is given up. A record that could not be
    deserialized is known to be the bad one, and is given up at once.
9.  Rows of columns fail as a whole too, and may be millions. They are halved until the bad row is found: it costs two
    deliveries for each doubling of the batch.
10. What is retried or isolated is held in the lanes *before* the run ends in them. Otherwise the records behind it
    would be handed out first.
11. A worker that died leaves its untouched records to a stopped partition. At most once, those that it had handed out
    are dropped: they may have been handled.
12. At most once nothing is delivered twice, so a decision to stop becomes a decision to drop.
13. Records behind a failed one, of its key or partition, are held by the lanes, or follow it into its retry topic
    (`Followers`).
14. A result of an older assignment never comes here: the session compares epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ottla.consumer.model.effects import Effect
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.consumer.outcomes.expiries import Expiries
from ottla.consumer.outcomes.failed_delivery import FailedDelivery, first_attempts
from ottla.consumer.outcomes.notices import notice_of
from ottla.consumer.outcomes.stopping import stop_at
from ottla.consumer.outcomes.verdicts import Verdicts
from ottla.consumer.partitions.offsets import each_offset
from ottla.consumer.partitions.partition import PartitionState
from ottla.failures.exceptions import Failure
from ottla.failures.failure import DeadLetter, Decision, Finish, Postpone, RetryAt, Stop
from ottla.failures.outcomes import Dead, Retry

RetryTimer = Callable[[PartitionState, Sequence[AnyRecord], int], None]


@dataclass(slots=True)
class Redeliveries:
    """The records of one run that are delivered again."""

    retries: list[tuple[AnyRecord, int]] = field(default_factory=list)
    """Each with the time when it is due (monotonic)."""
    isolated: list[Sequence[AnyRecord]] = field(default_factory=list)
    """Groups that are delivered once more at once, each in its own run."""
    logged: Failure | None = None
    """The failure whose traceback was logged last: the records of a batch fail with one."""

    def groups(self, *, is_batch: bool) -> list[tuple[list[AnyRecord], int]]:
        """Return the records that are retried together, with their time. A batch is retried as one."""
        if is_batch and self.retries:
            return [([record for record, _ in self.retries], max(due_ms for _, due_ms in self.retries))]
        return [([record], due_ms) for record, due_ms in self.retries]


class Settlement:
    """Applies the results of one session's runs. `schedule` sets the timer of a retry."""

    __slots__ = ("_expiries", "_schedule", "_verdicts")

    def __init__(self, *, verdicts: Verdicts, expiries: Expiries, schedule: RetryTimer) -> None:
        self._verdicts = verdicts
        self._expiries = expiries
        self._schedule = schedule

    def apply_result(
        self, state: PartitionState, run: Run, result: RunResult, now_ms: int, wall_ms: int, effects: list[Effect]
    ) -> int:
        """Account for every record of the run. Returns how many records of the partition have become done."""
        before = state.tracker.finished_count
        self._settle_done(state, run, result, now_ms, effects)
        again = Redeliveries()
        may_isolate = result.is_batch_failure and len(run.records) > 1 and not state.plan.is_at_most_once
        for record, failure in result.failures:
            delivery = FailedDelivery(state, record, failure, now_ms, wall_ms, effects)
            self._apply_failure(delivery, again, may_isolate=may_isolate and failure.kind != "malformed")
        groups = again.groups(is_batch=state.plan.is_batch)
        if result.whole is not None:
            rows, failure = result.whole
            whole = FailedDelivery(state, rows[0], failure, now_ms, wall_ms, effects)
            again.isolated += self._apply_common_failure(whole, rows)
        for group in (*(group for group, _ in groups), *again.isolated):
            state.lanes.hold(group)
        self._end_run(state, run, result, effects)
        for alone in again.isolated:
            attempts = state.attempts[alone[0].offset]
            attempts.failed = min(attempts.failed, max(0, (state.plan.failures.retry.last_attempt or 1) - 1))
            state.lanes.retry(alone)
        for group, due_ms in groups:
            self._schedule(state, group, due_ms)
        return state.tracker.finished_count - before

    def _settle_done(
        self, state: PartitionState, run: Run, result: RunResult, now_ms: int, effects: list[Effect]
    ) -> None:
        done = run.records if result.done is None else result.done
        state.settle(done, ascend=result.done is None and run.is_first and state.lanes.keep_order)
        if state.attempts:
            for offset in each_offset(done):
                state.attempts.pop(offset, None)
        budget = self._verdicts.budget_of(state, now_ms)
        if budget is not None:
            budget.succeeded(len(done) - len(result.expired))
        if result.expired:
            self._expiries.count(state, result.expired, now_ms, effects)

    def _apply_failure(self, delivery: FailedDelivery, again: Redeliveries, *, may_isolate: bool) -> None:
        """Decide about one failed record: retry it, deliver it alone, or give it up."""
        if delivery.failure.is_expiry:
            self._verdicts.expire(delivery)
            return
        decision: Decision = self._verdicts.decide(delivery)
        if delivery.state.plan.is_at_most_once and isinstance(decision, Stop):
            decision = Finish()
        if isinstance(decision, RetryAt):
            self._retry(delivery, decision.due_ms, again)
        elif may_isolate and isinstance(decision, DeadLetter | Stop | Postpone):
            again.isolated.append([delivery.record])
        else:
            free_ms = self._verdicts.give_up(delivery, decision)
            if free_ms is not None:
                again.retries.append((delivery.record, free_ms))

    @staticmethod
    def _retry(delivery: FailedDelivery, due_ms: int, again: Redeliveries) -> None:
        again.retries.append((delivery.record, due_ms))
        _note_due(delivery.state, due_ms)
        failure = delivery.failure
        trace = "" if failure is again.logged else failure.stack_trace
        again.logged = failure
        delivery.log_failure("record_retried", trace=trace, in_ms=due_ms - delivery.now_ms)

    def _end_run(self, state: PartitionState, run: Run, result: RunResult, effects: list[Effect]) -> None:
        """End the run in the lanes. If its worker died, the partition stops at the untouched records."""
        fatal = result.fatal
        if fatal is None:
            state.lanes.end_run(run.records, result.untouched)
            return
        left = list(result.untouched)
        if state.plan.is_at_most_once:
            left = self._drop_handed_out(state, run, left, fatal, effects)
        stop_at(state, left, f"a worker died: {fatal.error_type}: {fatal.message}", effects)
        state.lanes.end_run(run.records, ())

    @staticmethod
    def _drop_handed_out(
        state: PartitionState, run: Run, left: list[AnyRecord], fatal: Failure, effects: list[Effect]
    ) -> list[AnyRecord]:
        """Settle what a worker that died had handed out, at most once. Returns the rest."""
        not_handed_out = 0 if state.plan.is_batch else len(run.records) - run.handed_out
        at = max(0, len(left) - not_handed_out)
        for record in left[:at]:
            effects.append(notice_of("record_dropped", "warning", state, record, fatal))
        state.settle(left[:at])
        return left[at:]

    def _apply_common_failure(self, delivery: FailedDelivery, rows: Sequence[AnyRecord]) -> list[Sequence[AnyRecord]]:
        """Decide about rows that failed together. `delivery` describes the first row, which carries their attempt
        count. Returns the halves to deliver once more, if the rows are to be halved."""
        state, failure = delivery.state, delivery.failure
        # Rows that expire meanwhile are taken out when they are delivered again, each by its own deadline.
        decision: Decision = self._verdicts.decide(delivery, expires=False)
        if state.plan.is_at_most_once and isinstance(decision, DeadLetter | Stop):
            decision = Finish()
        if isinstance(decision, RetryAt):
            in_ms = decision.due_ms - delivery.now_ms
            delivery.log_failure("record_retried", trace=failure.stack_trace, records=len(rows), in_ms=in_ms)
            _note_due(state, decision.due_ms)
            self._hold_until(state, rows, decision.due_ms)
        elif isinstance(decision, Finish):
            event = "record_dropped" if isinstance(failure.outcome, Retry | Dead) else "record_skipped"
            delivery.log_failure(event, records=len(rows))
            delivery.end_count()
            state.settle(rows)
        elif len(rows) == 1:
            free_ms = self._verdicts.give_up(delivery, decision)
            if free_ms is not None:
                self._hold_until(state, rows, free_ms)
        else:
            return self._halves(state, rows)
        return []

    def _hold_until(self, state: PartitionState, rows: Sequence[AnyRecord], due_ms: int) -> None:
        state.lanes.hold(rows)
        self._schedule(state, rows, due_ms)

    @staticmethod
    def _halves(state: PartitionState, rows: Sequence[AnyRecord]) -> list[Sequence[AnyRecord]]:
        middle = len(rows) // 2
        halves = [rows[:middle], rows[middle:]]
        before = state.attempts.pop(rows[0].offset)
        for half in halves:
            # A row that only follows a failed one into a retry topic has not used up what that one has.
            own = first_attempts(state, half[0], before.since_ms)
            state.attempts[half[0].offset] = replace(own, failed=before.failed, outages=before.outages)
        return halves


def _note_due(state: PartitionState, due_ms: int) -> None:
    """Remember, for readiness, that a record of a retry topic is not late before this time."""
    if state.level is not None:
        state.level.due_ms = max(state.level.due_ms, due_ms)
