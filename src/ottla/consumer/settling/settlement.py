"""What follows from a finished run: records done, records to retry, dead letters, or a stop. No client, no clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from ottla.consumer.model.effects import Effect
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.consumer.partitions.offsets import each_offset
from ottla.consumer.partitions.partition import Attempts, PartitionState
from ottla.consumer.settling.expiries import Expiries
from ottla.consumer.settling.letters import Letters
from ottla.consumer.settling.notices import notice_of
from ottla.consumer.settling.stopping import stop_at
from ottla.failures.budget import BudgetMeter
from ottla.failures.dead_letter import DeadLetterReason
from ottla.failures.exceptions import Failure
from ottla.failures.failure import DeadLetter, Decision, Expire, Finish, Postpone, RetryAt, Stop
from ottla.failures.outcomes import Dead, Retry
from ottla.failures.retry_headers import retry_state_of

RetryTimer = Callable[[PartitionState, Sequence[AnyRecord], int], None]


class Settlement:
    """Applies run results to partitions. One per session; `schedule` is how it asks for a later redelivery."""

    __slots__ = ("_expiries", "_group", "_letters", "_meters", "_random", "_schedule")

    def __init__(
        self, *, group: str, random: Random, letters: Letters, expiries: Expiries, schedule: RetryTimer
    ) -> None:
        self._group = group
        self._random = random
        self._letters = letters
        self._expiries = expiries
        self._schedule = schedule
        self._meters: dict[str, BudgetMeter] = {}

    @property
    def budget_tokens(self) -> dict[str, float]:
        """Dead letters that are allowed at once, by handler."""
        return {name: meter.tokens for name, meter in self._meters.items()}

    def settle(
        self, state: PartitionState, run: Run, result: RunResult, now_ms: int, wall_ms: int, effects: list[Effect]
    ) -> int:
        """Account for everything in the run. Returns how many of its records are done now."""
        before = state.tracker.finished_count
        done = run.records if result.done is None else result.done
        state.settle(done, ascend=result.done is None and run.is_first and state.lanes.keep_order)
        if state.attempts:
            for offset in each_offset(done):
                state.attempts.pop(offset, None)
        meter = self._meter_of(state, now_ms)
        if meter is not None:
            meter.succeeded(len(done) - len(result.expired))
        if result.expired:
            self._expiries.count(state, result.expired, now_ms, effects)
        retries: list[AnyRecord] = []
        isolated: list[Sequence[AnyRecord]] = []
        due: list[int] = []
        is_once = state.plan.is_at_most_once
        is_shared = result.is_batch_failure and len(run.records) > 1 and not is_once
        told: Failure | None = None
        for record, failure in result.failures:
            if failure.is_expiry:
                self._expire(state, record, failure, now_ms, wall_ms, effects)
                continue
            decision = self._decide(state, record, failure, now_ms, wall_ms)
            if is_once and isinstance(decision, Stop):
                decision = Finish()
            is_its_own = not is_shared or failure.kind == "malformed"
            if not is_its_own and isinstance(decision, DeadLetter | Stop | Postpone):
                isolated.append([record])
            elif isinstance(decision, RetryAt):
                retries.append(record)
                due.append(decision.due_ms)
                if state.stage is not None:
                    state.stage.due_ms = max(state.stage.due_ms, decision.due_ms)
                trace = "" if failure is told else failure.stack_trace  # a batch fails with one error
                told = failure
                in_ms = decision.due_ms - now_ms
                effects.append(notice_of("record_retried", "warning", state, record, failure, trace=trace, in_ms=in_ms))
            else:
                free_ms = self._give_up(state, record, failure, decision, now_ms, wall_ms, effects)
                if free_ms is not None:
                    retries.append(record)
                    due.append(free_ms)
        groups = [retries] if state.plan.is_batch and retries else [[record] for record in retries]
        if result.whole is not None:
            isolated += self._fail_as_one(state, *result.whole, now_ms, wall_ms, effects)
        for group in (*groups, *isolated):
            state.lanes.hold(group)
        if result.fatal is not None:
            reason = f"a worker died: {result.fatal.error_type}: {result.fatal.message}"
            left = list(result.untouched)
            if is_once:
                left = self._drop_handed_out(state, run, left, result.fatal, effects)
            stop_at(state, left, reason, effects)
            state.lanes.end_run(run.records, ())
        else:
            state.lanes.end_run(run.records, result.untouched)
        # One bad record must not condemn its batch: each is delivered once more alone, and only what fails alone is
        # given up.
        for alone in isolated:
            attempts = state.attempts[alone[0].offset]
            attempts.failed = min(attempts.failed, max(0, (state.plan.failures.retry.last_attempt or 1) - 1))
            state.lanes.retry(alone)
        if state.plan.is_batch and retries:
            self._schedule(state, retries, max(due))
        else:
            for group, due_ms in zip(groups, due, strict=True):
                self._schedule(state, group, due_ms)
        return state.tracker.finished_count - before

    def _fail_as_one(
        self,
        state: PartitionState,
        rows: Sequence[AnyRecord],
        failure: Failure,
        now_ms: int,
        wall_ms: int,
        effects: list[Effect],
    ) -> list[Sequence[AnyRecord]]:
        """Rows that failed together are retried together, and their attempts are counted at the first of them. When
        those are used up, each half is delivered once more, and what fails again is halved again: one row that cannot
        be handled costs two deliveries for each doubling of the batch, and is given up alone. Returns the halves."""
        first = rows[0]
        # Rows that expire meanwhile are taken out when they are delivered again, each by its own deadline.
        decision = self._decide(state, first, failure, now_ms, wall_ms, expires=False)
        if state.plan.is_at_most_once and isinstance(decision, DeadLetter | Stop):
            decision = Finish()
        if isinstance(decision, RetryAt):
            trace, in_ms = failure.stack_trace, decision.due_ms - now_ms
            fields = {"records": len(rows), "in_ms": in_ms}
            effects.append(notice_of("record_retried", "warning", state, first, failure, trace=trace, **fields))
            if state.stage is not None:
                state.stage.due_ms = max(state.stage.due_ms, decision.due_ms)
            state.lanes.hold(rows)
            self._schedule(state, rows, decision.due_ms)
        elif isinstance(decision, Finish):
            event = "record_dropped" if isinstance(failure.outcome, Retry | Dead) else "record_skipped"
            effects.append(notice_of(event, "warning", state, first, failure, records=len(rows)))
            state.attempts.pop(first.offset, None)
            state.settle(rows)
        elif len(rows) == 1:
            free_ms = self._give_up(state, first, failure, decision, now_ms, wall_ms, effects)
            if free_ms is not None:
                state.lanes.hold(rows)
                self._schedule(state, rows, free_ms)
        else:
            middle = len(rows) // 2
            halves = [rows[:middle], rows[middle:]]
            before = state.attempts.pop(first.offset)
            for half in halves:
                # A row that only follows a failed one into a retry topic has not used up what that one has.
                own = self._new_attempts(state, half[0], before.since_ms)
                state.attempts[half[0].offset] = replace(own, failed=before.failed, outages=before.outages)
            return halves
        return []

    def _drop_handed_out(
        self, state: PartitionState, run: Run, left: list[AnyRecord], fatal: Failure, effects: list[Effect]
    ) -> list[AnyRecord]:
        """At most once: what the worker that died had handed out is over. Returns the rest."""
        not_handed_out = 0 if state.plan.is_batch else len(run.records) - run.handed_out
        at = max(0, len(left) - not_handed_out)
        for record in left[:at]:
            effects.append(notice_of("record_dropped", "warning", state, record, fatal))
        state.settle(left[:at])
        return left[at:]

    def _decide(
        self,
        state: PartitionState,
        record: AnyRecord,
        failure: Failure,
        now_ms: int,
        wall_ms: int,
        *,
        expires: bool = True,
    ) -> Decision:
        """Count the failure and ask the policy."""
        attempts = state.attempts.get(record.offset)
        if attempts is None:
            attempts = state.attempts[record.offset] = self._new_attempts(state, record, now_ms)
        if failure.is_outage:
            attempts.outages += 1
        else:
            attempts.failed += 1
        expires_ms = state.plan.failures.expiry.expires_ms(record) if expires else None
        return state.plan.failures.decide(
            failure,
            attempts=attempts.failed,
            outages=attempts.outages,
            now_ms=now_ms,
            random=self._random,
            elapsed_ms=now_ms - attempts.since_ms,
            stage=0 if state.stage is None else state.stage.index,
            carried=attempts.carried,
            expires_ms=None if expires_ms is None else expires_ms - wall_ms + now_ms,
        )

    @staticmethod
    def _new_attempts(state: PartitionState, record: AnyRecord, since_ms: int) -> Attempts:
        """Those of a record that has not failed here before, with what it carried into a retry topic."""
        before = retry_state_of(record.headers) if state.stage is not None else None
        if before is None:
            return Attempts(since_ms=since_ms)
        return Attempts(since_ms=since_ms, first_failure_ms=before.first_failure_ms or 0, carried=before.attempts)

    def _give_up(
        self,
        state: PartitionState,
        record: AnyRecord,
        failure: Failure,
        decision: Decision,
        now_ms: int,
        wall_ms: int,
        effects: list[Effect],
    ) -> int | None:
        """Finish, dead-letter or stop. Returns when to try again instead, if the dead letter budget is spent."""
        if isinstance(decision, Expire):
            self._expire(state, record, failure, now_ms, wall_ms, effects)
        elif isinstance(decision, DeadLetter):
            meter = self._meter_of(state, now_ms)
            free_ms: int | None = meter.take(now_ms) if meter is not None else None
            if free_ms is not None:
                attempts = state.attempts[record.offset]
                attempts.failed = max(0, attempts.failed - 1)
                trace, in_ms = failure.stack_trace, free_ms - now_ms
                notice = notice_of(
                    "dead_letter_budget_spent", "error", state, record, failure, trace=trace, in_ms=in_ms
                )
                effects.append(notice)
                return free_ms
            fields = {"dead_letter_topic": decision.topic}
            notice = notice_of(
                "record_dead_lettered", "warning", state, record, failure, trace=failure.stack_trace, **fields
            )
            attempts = state.attempts.pop(record.offset)
            reason = DeadLetterReason.of(
                failure,
                attempts=max(1, attempts.total),
                group=self._group,
                first_failure_ms=attempts.first_failed_ms(now_ms, wall_ms),
                dead_lettered_ms=wall_ms,
            )
            self._letters.dead_letter(state, record, decision.topic, reason, notice, now_ms, effects)
        elif isinstance(decision, Postpone):
            in_ms = decision.delay_ms
            notice = notice_of(
                "record_postponed", "warning", state, record, failure, trace=failure.stack_trace, in_ms=in_ms
            )
            attempts = state.attempts.pop(record.offset)
            attempts.first_failure_ms = attempts.first_failed_ms(now_ms, wall_ms)
            letter = self._letters.retry(
                state,
                record,
                decision.number,
                wall_ms + in_ms,
                now_ms,
                effects,
                attempts=attempts,
                failure=failure.without_error(),
            )
            letter.notice = notice
        elif isinstance(decision, Stop):
            stop_at(state, [record], decision.reason, effects, trace=failure.stack_trace)
        else:
            state.attempts.pop(record.offset, None)
            state.settle([record])
            is_dropped = state.plan.is_at_most_once and isinstance(failure.outcome, Retry | Dead)
            event = "record_dropped" if is_dropped else "record_skipped"
            trace = failure.stack_trace if is_dropped else ""
            effects.append(notice_of(event, "warning", state, record, failure, trace=trace))
        return None

    def _expire(
        self,
        state: PartitionState,
        record: AnyRecord,
        failure: Failure,
        now_ms: int,
        wall_ms: int,
        effects: list[Effect],
    ) -> None:
        """The record is not delivered any more. A dead letter of it costs nothing of the budget and no log line: an
        outage expires thousands. `failure` is why it failed, or only that it expired."""
        plan = state.plan.failures
        attempts = state.attempts.pop(record.offset, None)
        before = retry_state_of(record.headers) if attempts is None and state.stage is not None else None
        error_type, message = failure.error_type, failure.message
        if failure.is_expiry and before is not None and before.error_type:
            error_type, message = before.error_type, f"{message}; it had failed with: {before.message}"
        error = f"{error_type}: {message}" if error_type else ""
        self._expiries.count(state, [record], now_ms, effects, error=error)
        if not isinstance(plan.expiry.outcome, Dead) or plan.dead_letter_topic is None:
            state.settle([record])
            return
        failed, first_failure_ms = 0, wall_ms
        if attempts is not None:
            failed, first_failure_ms = attempts.total, attempts.first_failed_ms(now_ms, wall_ms)
        elif before is not None:
            failed, first_failure_ms = before.attempts, before.first_failure_ms or wall_ms
        reason = DeadLetterReason(
            kind="expired",
            error_type=error_type,
            message=message,
            stack_trace=failure.stack_trace,
            attempts=failed,
            group=self._group,
            first_failure_ms=first_failure_ms,
            dead_lettered_ms=wall_ms,
        )
        self._letters.dead_letter(state, record, plan.dead_letter_topic, reason, None, now_ms, effects)

    def _meter_of(self, state: PartitionState, now_ms: int) -> BudgetMeter | None:
        plan = state.plan
        if plan.budget is None:
            return None
        meter = self._meters.get(plan.name)
        if meter is None:
            meter = self._meters[plan.name] = BudgetMeter(plan.budget, now_ms)
        return meter
