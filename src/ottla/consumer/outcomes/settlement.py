"""Applies the result of a run to its partition: records are settled, given up, or delivered again. No client, no clock.

How it works:

1.  A worker has ended a run. Each record of it is done, has failed, or is untouched (`RunResult`).
2.  Records that are done are settled: their offsets may be committed.
3.  Each failed record is counted, and the handler's failure policy decides about it (`_decide`).
4.  Retry: the record waits in its lane until it is due, then it is delivered again, alone.
5.  Give up: the record becomes a dead letter, is written to a retry topic, is dropped on request, or stops its
    partition (`_give_up`). A written record is settled when the write is acknowledged (`FailureWriter`).
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
from dataclasses import replace
from random import Random

from ottla.consumer.model.effects import Effect
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.consumer.outcomes.expiries import Expiries
from ottla.consumer.outcomes.failed_delivery import FailedDelivery, Redeliveries, first_attempts
from ottla.consumer.outcomes.failure_writer import FailureWriter
from ottla.consumer.outcomes.notices import notice_of
from ottla.consumer.outcomes.stopping import stop_at
from ottla.consumer.partitions.offsets import each_offset
from ottla.consumer.partitions.partition import PartitionState
from ottla.failures.budget import BudgetMeters
from ottla.failures.dead_letter import DeadLetterReason
from ottla.failures.exceptions import Failure
from ottla.failures.failure import DeadLetter, Decision, Expire, Finish, Postpone, RetryAt, Stop, unless_expired
from ottla.failures.outcomes import Dead, Retry

RetryTimer = Callable[[PartitionState, Sequence[AnyRecord], int], None]


class Settlement:
    """Applies the results of one session's runs, and has the dead letter budgets of its handlers. `schedule` sets the
    timer of a retry."""

    __slots__ = ("_expiries", "_group", "_random", "_schedule", "_writer", "budgets")

    def __init__(
        self, *, group: str, random: Random, writer: FailureWriter, expiries: Expiries, schedule: RetryTimer
    ) -> None:
        self._group = group
        self._random = random
        self._writer = writer
        self._expiries = expiries
        self._schedule = schedule
        self.budgets = BudgetMeters()

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
        budget = self.budgets.of(state.plan.name, state.plan.budget, now_ms)
        if budget is not None:
            budget.succeeded(len(done) - len(result.expired))
        if result.expired:
            self._expiries.count(state, result.expired, now_ms, effects)

    def _apply_failure(self, delivery: FailedDelivery, again: Redeliveries, *, may_isolate: bool) -> None:
        """Decide about one failed record: retry it, deliver it alone, or give it up."""
        if delivery.failure.is_expiry:
            self._expiries.expire(delivery)
            return
        decision = self._decide(delivery)
        if delivery.state.plan.is_at_most_once and isinstance(decision, Stop):
            decision = Finish()
        if isinstance(decision, RetryAt):
            self._retry(delivery, decision.due_ms, again)
        elif may_isolate and isinstance(decision, DeadLetter | Stop | Postpone):
            again.isolated.append([delivery.record])
        else:
            free_ms = self._give_up(delivery, decision)
            if free_ms is not None:
                again.retries.append((delivery.record, free_ms))

    def _decide(self, delivery: FailedDelivery, *, expires: bool = True) -> Decision:
        """Count the failure and ask the policy. `expires`: whether the record's time to live ends its retries."""
        state, now_ms = delivery.state, delivery.now_ms
        attempts = delivery.count()
        expires_ms = state.plan.failures.expiry.expires_ms(delivery.record) if expires else None
        decision = state.plan.failures.decide(
            delivery.failure,
            attempts=attempts.failed,
            outages=attempts.outages,
            now_ms=now_ms,
            random=self._random,
            elapsed_ms=now_ms - attempts.since_ms,
            stage=0 if state.level is None else state.level.index,
            carried=attempts.carried,
        )
        return unless_expired(decision, now_ms=now_ms, wall_ms=delivery.wall_ms, expires_ms=expires_ms)

    def _give_up(self, delivery: FailedDelivery, decision: Decision) -> int | None:
        """Carry out a decision that ends the record's deliveries here. Returns None, or when to deliver it again
        because the dead letter budget is spent."""
        match decision:
            case DeadLetter(topic):
                return self._dead_letter(delivery, topic)
            case Postpone():
                self._postpone(delivery, decision)
            case Stop(reason):
                trace = delivery.failure.stack_trace
                stop_at(delivery.state, [delivery.record], reason, delivery.effects, trace=trace)
            case Expire():
                self._expiries.expire(delivery)
            case Finish() | RetryAt():
                self._finish(delivery)
        return None

    @staticmethod
    def _finish(delivery: FailedDelivery) -> None:
        """Settle the record as it is."""
        state, failure = delivery.state, delivery.failure
        delivery.end_count()
        state.settle([delivery.record])
        is_dropped = state.plan.is_at_most_once and isinstance(failure.outcome, Retry | Dead)
        event = "record_dropped" if is_dropped else "record_skipped"
        delivery.log_failure(event, trace=failure.stack_trace if is_dropped else "")

    def _dead_letter(self, delivery: FailedDelivery, topic: str) -> int | None:
        """Write the record to the dead letter topic. Returns when to try again instead, if the budget is spent."""
        state, failure, now_ms = delivery.state, delivery.failure, delivery.now_ms
        trace = failure.stack_trace
        meter = self.budgets.of(state.plan.name, state.plan.budget, now_ms)
        free_ms: int | None = meter.take(now_ms) if meter is not None else None
        if free_ms is not None:
            attempts = state.attempts[delivery.record.offset]
            attempts.failed = max(0, attempts.failed - 1)
            delivery.log_failure("dead_letter_budget_spent", "error", trace=trace, in_ms=free_ms - now_ms)
            return free_ms
        notice = delivery.failure_notice("record_dead_lettered", trace=trace, dead_letter_topic=topic)
        attempts = state.attempts.pop(delivery.record.offset)
        reason = DeadLetterReason.of(
            failure,
            attempts=max(1, attempts.total),
            group=self._group,
            first_failure_ms=attempts.first_failed_ms(now_ms, delivery.wall_ms),
            dead_lettered_ms=delivery.wall_ms,
        )
        self._writer.write_dead_letter(state, delivery.record, topic, reason, notice, now_ms, delivery.effects)
        return None

    def _postpone(self, delivery: FailedDelivery, decision: Postpone) -> None:
        """Write the record to a retry topic."""
        state, failure, now_ms = delivery.state, delivery.failure, delivery.now_ms
        notice = delivery.failure_notice(
            "record_sent_to_retry_topic", trace=failure.stack_trace, in_ms=decision.delay_ms
        )
        attempts = state.attempts.pop(delivery.record.offset)
        attempts.first_failure_ms = attempts.first_failed_ms(now_ms, delivery.wall_ms)
        self._writer.write_retry(
            state,
            delivery.record,
            decision.number,
            delivery.wall_ms + decision.delay_ms,
            now_ms,
            delivery.effects,
            attempts=attempts,
            failure=failure,
            notice=notice,
        )

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
        decision = self._decide(delivery, expires=False)
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
            free_ms = self._give_up(delivery, decision)
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
