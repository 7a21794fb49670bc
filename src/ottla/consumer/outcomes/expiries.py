"""Expired records: they are settled, or become dead letters, and are logged in one line per partition and minute.

The first line is logged at once. Later records are counted, and logged after a minute or when the partition is revoked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ottla.consumer.model.effects import Effect, Expired, Notice
from ottla.consumer.model.run import AnyRecord
from ottla.consumer.model.timers import At
from ottla.consumer.outcomes.failed_delivery import FailedDelivery
from ottla.consumer.outcomes.failure_writer import FailureWriter
from ottla.consumer.partitions.partition import ExpiredHere, PartitionState
from ottla.failures.dead_letter import DeadLetterReason
from ottla.failures.outcomes import Dead
from ottla.failures.retry_headers import retry_state_of

EVERY_MS: Final = 60_000


class Expiries:
    """The expired records of one session. `at` sets a timer."""

    __slots__ = ("_at", "_group", "_writer")

    def __init__(self, at: At, *, group: str, writer: FailureWriter) -> None:
        self._at = at
        self._group = group
        self._writer = writer

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
        self.count(state, [record], delivery.now_ms, delivery.effects, error=error)
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

    def count(
        self,
        state: PartitionState,
        records: Sequence[AnyRecord],
        now_ms: int,
        effects: list[Effect],
        *,
        error: str = "",
    ) -> None:
        """Count records that are not delivered any more. `error`: why the last of them had failed before."""
        if not records:
            return
        effects.append(Expired(state.topic_partition, state.plan.name, records))
        account = state.expired
        is_first = account is None
        if account is None:
            account = state.expired = ExpiredHere()
        if not account.records:
            account.offset = records[0].offset
        account.records += len(records)
        account.error = error or account.error
        if is_first:
            self._log(state, account, now_ms, effects)

    def leave(self, states: Iterable[PartitionState], effects: list[Effect]) -> None:
        """Log the counted records of these partitions, which are revoked or restarted."""
        for state in states:
            account, state.expired = state.expired, None
            if account is not None and account.records:
                effects.append(_notice(state, account))

    def _log(self, state: PartitionState, account: ExpiredHere, now_ms: int, effects: list[Effect]) -> None:
        effects.append(_notice(state, account))
        account.records, account.error = 0, ""
        self._at(now_ms + EVERY_MS, lambda fired_ms, out: self._minute_over(state, account, fired_ms, out))

    def _minute_over(self, state: PartitionState, account: ExpiredHere, now_ms: int, effects: list[Effect]) -> None:
        if state.expired is not account:
            return
        if account.records:
            self._log(state, account, now_ms, effects)
        else:
            state.expired = None


def _notice(state: PartitionState, account: ExpiredHere) -> Notice:
    fields: dict[str, object] = {
        "partition": str(state.topic_partition),
        "records": account.records,
        "offset": account.offset,
    }
    return Notice("records_expired", "warning", {**fields, "error": account.error} if account.error else fields)
