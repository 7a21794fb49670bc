"""What follows from a finished run: records done, records to retry, dead letters, or a stop. No client, no clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from ottla.consumer.effects import Effect, Notice, WriteDeadLetter, WriteRetry
from ottla.consumer.lanes import Ordering
from ottla.consumer.notices import notice_of, place_fields, trace_fields
from ottla.consumer.partition import Attempts, PartitionState, PendingWrite, StoppedAt
from ottla.consumer.run import AnyRecord, Run, RunResult
from ottla.delivery.budget import BudgetMeter
from ottla.delivery.dead_letter import DeadLetterReason, Form
from ottla.delivery.exceptions import Failure
from ottla.delivery.failure import DeadLetter, Decision, Finish, Postpone, RetryAt, Stop
from ottla.delivery.outcomes import Dead, Retry
from ottla.delivery.retry_headers import RetryState, original_of, retry_state_of

DEAD_LETTER_WRITE_ATTEMPTS = 5

RetryTimer = Callable[[PartitionState, Sequence[AnyRecord], int], None]


class Settlement:
    """Applies run results to partitions. One per session; `schedule` is how it asks for a later redelivery."""

    __slots__ = ("_group", "_meters", "_random", "_schedule")

    def __init__(self, *, group: str, random: Random, schedule: RetryTimer) -> None:
        self._group = group
        self._random = random
        self._schedule = schedule
        self._meters: dict[str, BudgetMeter] = {}

    def settle(
        self, state: PartitionState, run: Run, result: RunResult, now_ms: int, wall_ms: int, effects: list[Effect]
    ) -> int:
        """Account for everything in the run. Returns how many of its records are done now."""
        before = state.tracker.finished_count
        done = run.records if result.done is None else result.done
        state.settle(done, ascend=result.done is None and run.is_first and state.lanes.keep_order)
        if state.attempts:
            for record in done:
                state.attempts.pop(record.offset, None)
        meter = self._meter_of(state, now_ms)
        if meter is not None:
            meter.succeeded(len(done))
        retries: list[AnyRecord] = []
        isolated: list[AnyRecord] = []
        due: list[int] = []
        is_once = state.plan.is_at_most_once
        is_shared = result.is_batch_failure and len(run.records) > 1 and not is_once
        told: Failure | None = None
        for record, failure in result.failures:
            decision = self._decide(state, record, failure, now_ms, wall_ms)
            if is_once and isinstance(decision, Stop):
                decision = Finish()
            is_its_own = not is_shared or failure.kind == "malformed"
            if not is_its_own and isinstance(decision, DeadLetter | Stop | Postpone):
                isolated.append(record)
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
        for group in groups:
            state.lanes.hold(group)
        for record in isolated:
            state.lanes.hold([record])
        if result.fatal is not None:
            reason = f"a worker died: {result.fatal.error_type}: {result.fatal.message}"
            left = list(result.untouched)
            if is_once:
                left = self._drop_handed_out(state, run, left, result.fatal, effects)
            self.stop(state, left, reason, effects)
            state.lanes.end_run(run.records, ())
        else:
            state.lanes.end_run(run.records, result.untouched)
        # One bad record must not condemn its batch: each is delivered once more alone, and only what fails alone is
        # given up.
        for record in isolated:
            attempts = state.attempts[record.offset]
            attempts.failed = min(attempts.failed, max(0, (state.plan.failures.retry.max_attempts or 1) - 1))
            state.lanes.retry([record])
        if state.plan.is_batch and retries:
            self._schedule(state, retries, max(due))
        else:
            for group, due_ms in zip(groups, due, strict=True):
                self._schedule(state, group, due_ms)
        return state.tracker.finished_count - before

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

    def park(self, state: PartitionState, run: Run, now_ms: int, effects: list[Effect]) -> Run | None:
        """Pass on what must follow an earlier record of its key. Returns what is left of the run, or None."""
        stage = state.stage
        if stage is None or not stage.line.holds_any(stage.index):
            return run
        parked = [record for record in run.records if stage.line.is_held(record.raw_key, stage.index)]
        if not parked:
            return run
        for record in parked:
            self._write_retry(state, record, stage.index + 1, 0, now_ms, effects)
        fields = {"partition": str(state.topic_partition), "records": len(parked), "offset": parked[0].offset}
        effects.append(Notice("records_parked", "info", fields))
        left = {record.offset for record in run.records} - {record.offset for record in parked}
        run.records = [record for record in run.records if record.offset in left]
        if not run.records or not state.lanes.keep_order:
            state.lanes.end_run(parked, ())
        return run if run.records else None

    def stop(
        self, state: PartitionState, group: list[AnyRecord], reason: str, effects: list[Effect], *, trace: str = ""
    ) -> None:
        """Hold the partition at these records until someone resumes it. `trace`: where the handler failed."""
        if group:
            state.lanes.hold(group)
        if state.stopped is None:
            offset = group[0].offset if group else state.tracker.position or 0
            state.stopped = StoppedAt(reason=reason, offset=offset)
            fields = {"partition": str(state.topic_partition), "offset": offset, "reason": reason}
            effects.append(Notice("partition_stopped", "error", {**fields, **trace_fields(trace)}))
        if group:
            state.stopped.groups.append(group)

    def dead_letter_failed(self, state: PartitionState, offset: int, error: str, effects: list[Effect]) -> int | None:
        """A dead letter was not written: milliseconds until the next try, or None when the partition was stopped."""
        letter = state.dead_letters[offset]
        letter.failed_writes += 1
        letter.is_writing = False
        letter.error = error
        fields = {"partition": str(state.topic_partition), "offset": offset, "error": error}
        if letter.failed_writes >= DEAD_LETTER_WRITE_ATTEMPTS:
            kind = "dead letter" if isinstance(letter.effect, WriteDeadLetter) else "retry"
            reason = f"the {kind} topic {letter.effect.target!r} does not take records: {error}"
            self.stop(state, [], reason, effects)
            return None
        effects.append(Notice("dead_letter_write_failed", "warning", {**fields, "writes": letter.failed_writes}))
        backoff_ms = float(200 << letter.failed_writes)
        return round(backoff_ms * (1 - 0.5 * self._random.random()))

    def _decide(
        self, state: PartitionState, record: AnyRecord, failure: Failure, now_ms: int, wall_ms: int
    ) -> Decision:
        """Count the failure and ask the policy."""
        attempts = state.attempts.get(record.offset)
        if attempts is None:
            before = retry_state_of(record.headers) if state.stage is not None else None
            attempts = state.attempts[record.offset] = Attempts(since_ms=now_ms, first_failure_ms=wall_ms)
            if before is not None:
                attempts.carried = before.attempts
                attempts.first_failure_ms = before.first_failure_ms or wall_ms
        if failure.is_outage:
            attempts.outages += 1
        else:
            attempts.failed += 1
        return state.plan.failures.decide(
            failure,
            attempts=attempts.failed,
            outages=attempts.outages,
            now_ms=now_ms,
            random=self._random,
            stage=0 if state.stage is None else state.stage.index,
            carried=attempts.carried,
        )

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
        if isinstance(decision, DeadLetter):
            meter = self._meter_of(state, now_ms)
            free_ms: int | None = meter.take(now_ms) if meter is not None else None
            if free_ms is not None:
                attempts = state.attempts[record.offset]
                attempts.failed = max(0, attempts.failed - 1)
                notice = notice_of("dead_letter_budget_spent", "error", state, record, failure, in_ms=free_ms - now_ms)
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
                first_failure_ms=attempts.first_failure_ms,
                dead_lettered_ms=wall_ms,
            )
            self._write_dead_letter(state, record, decision.topic, reason, notice, now_ms, effects)
        elif isinstance(decision, Postpone):
            in_ms = decision.delay_ms
            notice = notice_of(
                "record_postponed", "warning", state, record, failure, trace=failure.stack_trace, in_ms=in_ms
            )
            attempts = state.attempts.pop(record.offset)
            letter = self._write_retry(
                state, record, decision.number, wall_ms + in_ms, now_ms, effects, attempts=attempts, failure=failure
            )
            letter.notice = notice
        elif isinstance(decision, Stop):
            self.stop(state, [record], decision.reason, effects, trace=failure.stack_trace)
        else:
            state.attempts.pop(record.offset, None)
            state.settle([record])
            is_dropped = state.plan.is_at_most_once and isinstance(failure.outcome, Retry | Dead)
            event = "record_dropped" if is_dropped else "record_skipped"
            effects.append(notice_of(event, "warning", state, record, failure))
        return None

    def written(self, state: PartitionState, letter: PendingWrite, form: Form, effects: list[Effect]) -> None:
        """A dead letter or a record for a retry topic was acknowledged: say so, and write the next one of its key."""
        if letter.notice is not None:
            fields = {} if form is Form.WHOLE else {"form": form.value}
            effects.append(replace(letter.notice, fields={**letter.notice.fields, **fields}))
        effect = letter.effect
        record = effect.record
        if form.is_claim:
            event = "dead_letter_without_value"
            size = {"key_bytes": len(record.raw_key or b""), "value_bytes": len(record.raw_value or b"")}
            effects.append(Notice(event, "error", {**place_fields(state, record), "topic": effect.target, **size}))
        if isinstance(effect, WriteDeadLetter) and record.raw_key is not None:
            following = state.letter_order.acknowledged(record.raw_key)
            if isinstance(following, PendingWrite):
                following.is_queued = False
                following.is_writing = True
                effects.append(following.effect)

    def retry_does_not_fit(
        self, state: PartitionState, offset: int, error: str, now_ms: int, wall_ms: int, effects: list[Effect]
    ) -> bool:
        """A retry topic does not take a record in any form: it is a dead letter, or stops its partition. Returns
        whether it stops."""
        letter = state.dead_letters.pop(offset)
        effect = letter.effect
        assert isinstance(effect, WriteRetry)
        record, story = effect.record, effect.state
        message = f"{story.message}; the retry topic {effect.target!r} does not take the record: {error}".lstrip("; ")
        topic = state.plan.failures.dead_letter_topic
        if topic is None:
            self.stop(state, [record], message, effects)
            return True
        failure = letter.failure or Failure(outcome=Dead(reason=message), error_type="RecordTooLarge")
        failure = replace(failure, message=message)
        reason = DeadLetterReason.of(
            failure,
            attempts=max(1, story.attempts),
            group=self._group,
            first_failure_ms=story.first_failure_ms or wall_ms,
            dead_lettered_ms=wall_ms,
        )
        notice = notice_of(
            "record_dead_lettered",
            "warning",
            state,
            record,
            failure,
            trace=failure.stack_trace,
            attempts=story.attempts,
            dead_letter_topic=topic,
        )
        self._write_dead_letter(state, record, topic, reason, notice, now_ms, effects)
        return False

    def _write_dead_letter(
        self,
        state: PartitionState,
        record: AnyRecord,
        topic: str,
        reason: DeadLetterReason,
        notice: Notice,
        now_ms: int,
        effects: list[Effect],
    ) -> None:
        effect = WriteDeadLetter(state.topic_partition, state.epoch, record, topic, reason)
        letter = state.dead_letters[record.offset] = PendingWrite(effect, now_ms, notice)
        key = record.raw_key
        has_order = key is not None and state.plan.ordering is not Ordering.UNORDERED
        if not has_order or state.letter_order.ask(key or b"", letter):
            effects.append(effect)
        else:
            letter.is_writing = False
            letter.is_queued = True

    def _write_retry(
        self,
        state: PartitionState,
        record: AnyRecord,
        number: int,
        not_before_ms: int,
        now_ms: int,
        effects: list[Effect],
        *,
        attempts: Attempts | None = None,
        failure: Failure | None = None,
    ) -> PendingWrite:
        """Write the record to retry topic `number`; without `attempts` it has not failed, and keeps its story."""
        assert state.stage is not None
        line = state.stage.line
        target = line.partition_of(number)
        before = retry_state_of(record.headers)
        count, first_failure_ms = (0, None) if before is None else (before.attempts, before.first_failure_ms)
        if attempts is not None:
            count, first_failure_ms = attempts.total, attempts.first_failure_ms
        origin = original_of(record)
        story = RetryState(
            topic=origin.topic,
            partition=origin.partition,
            offset=origin.offset,
            timestamp_ms=origin.timestamp_ms,
            attempts=count,
            first_failure_ms=first_failure_ms,
            not_before_ms=not_before_ms,
            error_type="" if failure is None else failure.error_type,
            message="" if failure is None else failure.message,
        )
        effect = WriteRetry(state.topic_partition, state.epoch, record, target.topic, target.partition, number, story)
        letter = state.dead_letters[record.offset] = PendingWrite(effect, now_ms, failure=failure)
        key = record.raw_key
        line.expect(key, number)
        if key is None or not line.keeps_key_order or line.writes.ask((number, key), letter):
            effects.append(effect)
        else:
            letter.is_writing = False
            letter.is_queued = True
        return letter

    def _meter_of(self, state: PartitionState, now_ms: int) -> BudgetMeter | None:
        plan = state.plan
        if plan.budget is None:
            return None
        meter = self._meters.get(plan.name)
        if meter is None:
            meter = self._meters[plan.name] = BudgetMeter(plan.budget, now_ms)
        return meter
