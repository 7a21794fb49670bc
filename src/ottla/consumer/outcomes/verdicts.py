"""Decides about one failed record by the failure policy, and applies the decision. Redelivery is left to the
settlement, because lanes hold and redeliver records in groups."""

from __future__ import annotations

from random import Random

from ottla.consumer.outcomes.expiries import Expiries
from ottla.consumer.outcomes.failed_delivery import FailedDelivery
from ottla.consumer.outcomes.failure_writer import FailureWriter
from ottla.consumer.outcomes.stopping import stop_at
from ottla.consumer.partitions.partition import PartitionState
from ottla.failures.budget import BudgetMeter
from ottla.failures.dead_letter import DeadLetterReason
from ottla.failures.failure import DeadLetter, Decision, Expire, Finish, Postpone, RetryAt, Stop
from ottla.failures.outcomes import Dead, Retry
from ottla.failures.retry_headers import retry_state_of


class Verdicts:
    """The verdicts of one session, and the dead letter budgets of its handlers."""

    __slots__ = ("_expiries", "_group", "_meters", "_random", "_writer")

    def __init__(self, *, group: str, random: Random, writer: FailureWriter, expiries: Expiries) -> None:
        self._group = group
        self._random = random
        self._writer = writer
        self._expiries = expiries
        self._meters: dict[str, BudgetMeter] = {}

    @property
    def budget_tokens(self) -> dict[str, float]:
        """The number of dead letters that each handler may write at once, by its name."""
        return {name: meter.tokens for name, meter in self._meters.items()}

    def budget_of(self, state: PartitionState, now_ms: int) -> BudgetMeter | None:
        """Return the meter of a handler's dead letter budget; None if it has none."""
        plan = state.plan
        if plan.budget is None:
            return None
        meter = self._meters.get(plan.name)
        if meter is None:
            meter = self._meters[plan.name] = BudgetMeter(plan.budget, now_ms)
        return meter

    def decide(self, delivery: FailedDelivery, *, expires: bool = True) -> Decision:
        """Count the failure and ask the policy. `expires`: whether the record's time to live ends its retries."""
        state, now_ms = delivery.state, delivery.now_ms
        attempts = delivery.count()
        expires_ms = state.plan.failures.expiry.expires_ms(delivery.record) if expires else None
        return state.plan.failures.decide(
            delivery.failure,
            attempts=attempts.failed,
            outages=attempts.outages,
            now_ms=now_ms,
            random=self._random,
            elapsed_ms=now_ms - attempts.since_ms,
            stage=0 if state.level is None else state.level.index,
            carried=attempts.carried,
            expires_ms=None if expires_ms is None else expires_ms - delivery.wall_ms + now_ms,
        )

    def give_up(self, delivery: FailedDelivery, decision: Decision) -> int | None:
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
                self.expire(delivery)
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
        meter = self.budget_of(state, now_ms)
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

    def expire(self, delivery: FailedDelivery) -> None:
        """Settle the record because it has expired, or make a dead letter of it if that was declared.

        Such a dead letter takes nothing from the budget and has no log line of its own: an outage expires thousands.
        The delivery's failure is why the record failed last, or only that it expired."""
        state, record, failure, wall_ms = delivery.state, delivery.record, delivery.failure, delivery.wall_ms
        plan = state.plan.failures
        attempts = delivery.end_count()
        before = retry_state_of(record.headers) if attempts is None and state.level is not None else None
        error_type, message = failure.error_type, failure.message
        if failure.is_expiry and before is not None and before.error_type:
            error_type, message = before.error_type, f"{message}; it had failed with: {before.message}"
        error = f"{error_type}: {message}" if error_type else ""
        self._expiries.count(state, [record], delivery.now_ms, delivery.effects, error=error)
        if not isinstance(plan.expiry.outcome, Dead) or plan.dead_letter_topic is None:
            state.settle([record])
            return
        failed, first_failure_ms = 0, wall_ms
        if attempts is not None:
            failed, first_failure_ms = attempts.total, attempts.first_failed_ms(delivery.now_ms, wall_ms)
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
        topic = plan.dead_letter_topic
        self._writer.write_dead_letter(state, record, topic, reason, None, delivery.now_ms, delivery.effects)
