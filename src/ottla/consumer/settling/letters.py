"""Records on their way to a dead letter topic or a retry topic: begun, acknowledged, failed, or too large to be taken.

Those of one key are written one after the other, each when the one before is acknowledged: a write that fails and is
tried again must not land behind its successor.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from ottla.consumer.model.effects import Effect, Notice, WriteDeadLetter, WriteRetry
from ottla.consumer.model.run import AnyRecord
from ottla.consumer.partitions.lanes import Ordering
from ottla.consumer.partitions.partition import Attempts, PartitionState, PendingWrite
from ottla.consumer.settling.notices import notice_of, place_fields
from ottla.consumer.settling.stopping import stop_at
from ottla.failures.dead_letter import DeadLetterReason, Form
from ottla.failures.exceptions import Failure
from ottla.failures.outcomes import Dead
from ottla.failures.retry_headers import RetryState, original_of, retry_state_of

WRITE_ATTEMPTS: Final = 5


class Letters:
    """The writes of one session. What is under way is in each partition's `dead_letters`."""

    __slots__ = ("_group", "_random")

    def __init__(self, *, group: str, random: Random) -> None:
        self._group = group
        self._random = random

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
            stop_at(state, [record], message, effects)
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
        self.dead_letter(state, record, topic, reason, notice, now_ms, effects)
        return False

    def dead_letter(
        self,
        state: PartitionState,
        record: AnyRecord,
        topic: str,
        reason: DeadLetterReason,
        notice: Notice | None,
        now_ms: int,
        effects: list[Effect],
    ) -> None:
        """Write the record to the dead letter topic, behind earlier ones of its key. `notice` is logged when it is
        acknowledged."""
        effect = WriteDeadLetter(state.topic_partition, state.epoch, record, topic, reason)
        letter = state.dead_letters[record.offset] = PendingWrite(effect, now_ms, notice)
        key = record.raw_key
        has_order = key is not None and state.plan.ordering is not Ordering.UNORDERED
        if not has_order or state.letter_order.ask(key or b"", letter):
            effects.append(effect)
        else:
            letter.is_writing = False
            letter.is_queued = True

    def retry(
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
        if key is None or not line.keeps_key_order or line.writes.ask(key, letter):
            effects.append(effect)
        else:
            letter.is_writing = False
            letter.is_queued = True
        return letter

    def failed(self, state: PartitionState, offset: int, error: str, effects: list[Effect]) -> int | None:
        """A dead letter was not written: milliseconds until the next try, or None when the partition was stopped."""
        letter = state.dead_letters[offset]
        letter.failed_writes += 1
        letter.is_writing = False
        letter.error = error
        fields = {"partition": str(state.topic_partition), "offset": offset, "error": error}
        if letter.failed_writes >= WRITE_ATTEMPTS:
            kind = "dead letter" if isinstance(letter.effect, WriteDeadLetter) else "retry"
            reason = f"the {kind} topic {letter.effect.target!r} does not take records: {error}"
            stop_at(state, [], reason, effects)
            return None
        effects.append(Notice("dead_letter_write_failed", "warning", {**fields, "writes": letter.failed_writes}))
        backoff_ms = float(200 << letter.failed_writes)
        return round(backoff_ms * (1 - 0.5 * self._random.random()))
