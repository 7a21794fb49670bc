"""The writes of failed records: to a dead letter topic, or to a retry topic.

Writes of one key are sequential, each starts when the one before is acknowledged: a write that fails and is repeated
must not land behind its successor. A record is settled when its write is acknowledged. A write that fails is repeated
with backoff; after `WRITE_ATTEMPTS` the partition stops and says why.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from ottla.consumer.model.effects import Effect, Notice
from ottla.consumer.model.failed_writes import WriteDeadLetter, WriteRetry
from ottla.consumer.model.run import AnyRecord
from ottla.consumer.outcomes.notices import notice_of, place_fields
from ottla.consumer.outcomes.stopping import stop_at
from ottla.consumer.partitions.lanes import Ordering
from ottla.consumer.partitions.partition import Attempts, PartitionState, PendingWrite
from ottla.consumer.partitions.retry_chain import KeyedWrites
from ottla.failures.dead_letter import DeadLetterReason, Form
from ottla.failures.exceptions import Failure
from ottla.failures.outcomes import Dead
from ottla.failures.retry_headers import RetryState, original_of, retry_state_of

WRITE_ATTEMPTS: Final = 5


class FailureWriter:
    """The writes of one session. Those that are not acknowledged are in each partition's `pending_writes`."""

    __slots__ = ("_group", "_random")

    def __init__(self, *, group: str, random: Random) -> None:
        self._group = group
        self._random = random

    # Begin a write

    def write_dead_letter(
        self,
        state: PartitionState,
        record: AnyRecord,
        topic: str,
        reason: DeadLetterReason,
        notice: Notice | None,
        now_ms: int,
        effects: list[Effect],
    ) -> None:
        """Write the record to the dead letter topic, behind earlier ones of its key. `notice` is logged when the write
        is acknowledged."""
        effect = WriteDeadLetter(state.topic_partition, state.epoch, record, topic, reason)
        write = state.pending_writes[record.offset] = PendingWrite(effect, now_ms, notice)
        has_order = state.plan.ordering is not Ordering.UNORDERED
        _start_in_order(write, state.write_order if has_order else None, effects)

    def write_retry(
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
        notice: Notice | None = None,
    ) -> None:
        """Write the record to retry topic `number`, behind earlier ones of its key. Without `attempts` it has not
        failed, and keeps what its headers say. `notice` is logged when the write is acknowledged."""
        assert state.level is not None
        chain = state.level.chain
        target = chain.partition_of(number)
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
        write = state.pending_writes[record.offset] = PendingWrite(effect, now_ms, notice, failure)
        chain.expect(record.raw_key, number)
        _start_in_order(write, chain.writes if chain.keeps_key_order else None, effects)

    # What became of it

    def acknowledged(self, state: PartitionState, write: PendingWrite, form: Form, effects: list[Effect]) -> None:
        """Log what was written and in which form, and start the next write of the key."""
        if write.notice is not None:
            fields = {} if form is Form.WHOLE else {"form": form.value}
            effects.append(replace(write.notice, fields={**write.notice.fields, **fields}))
        record, target = write.effect.record, write.effect.target
        if form.is_claim:
            event = "dead_letter_without_value"
            size = {"key_bytes": len(record.raw_key or b""), "value_bytes": len(record.raw_value or b"")}
            effects.append(Notice(event, "error", {**place_fields(state, record), "topic": target, **size}))
        self._start_next(state, write, effects)

    def failed(self, state: PartitionState, offset: int, error: str, effects: list[Effect]) -> int | None:
        """Note that a write failed. Returns the milliseconds until it is repeated, or None if the partition was
        stopped."""
        write = state.pending_writes[offset]
        write.failed_writes += 1
        write.is_writing = False
        write.error = error
        if write.failed_writes >= WRITE_ATTEMPTS:
            kind = "dead letter" if isinstance(write.effect, WriteDeadLetter) else "retry"
            reason = f"the {kind} topic {write.effect.target!r} does not take records: {error}"
            stop_at(state, [], reason, effects)
            return None
        fields = {"partition": str(state.topic_partition), "offset": offset, "error": error}
        effects.append(Notice("dead_letter_write_failed", "warning", {**fields, "writes": write.failed_writes}))
        backoff_ms = float(200 << write.failed_writes)
        return round(backoff_ms * (1 - 0.5 * self._random.random()))

    def retry_does_not_fit(
        self, state: PartitionState, offset: int, error: str, now_ms: int, wall_ms: int, effects: list[Effect]
    ) -> bool:
        """Make a dead letter of a record that a retry topic takes in no form, or stop its partition. Returns whether
        the partition was stopped."""
        write = state.pending_writes.pop(offset)
        effect = write.effect
        assert isinstance(effect, WriteRetry)
        assert state.level is not None
        record, story = effect.record, effect.state
        state.level.chain.expect_no_more(record.raw_key, effect.number)
        self._start_next(state, write, effects)
        message = f"{story.message}; the retry topic {effect.target!r} does not take the record: {error}".lstrip("; ")
        topic = state.plan.failures.dead_letter_topic
        if topic is None:
            stop_at(state, [record], message, effects)
            return True
        failure = write.failure or Failure(outcome=Dead(reason=message), error_type="RecordTooLarge")
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
        self.write_dead_letter(state, record, topic, reason, notice, now_ms, effects)
        return False

    # Repeat it

    def repeat(self, state: PartitionState, offset: int, effects: list[Effect]) -> None:
        """Start a failed write again, unless the partition has stopped meanwhile."""
        write = state.pending_writes.get(offset)
        if write is not None and state.stopped is None and not write.is_writing:
            _start(write, effects)

    def repeat_all(self, state: PartitionState, effects: list[Effect]) -> None:
        """Start all failed writes of a resumed partition again."""
        for write in state.pending_writes.values():
            if not write.is_writing and not write.is_queued:
                write.failed_writes = 0
                _start(write, effects)

    @staticmethod
    def _start_next(state: PartitionState, write: PendingWrite, effects: list[Effect]) -> None:
        """Start the write of the key that waits for this one, if any."""
        key = write.effect.record.raw_key
        if key is None:
            return
        if isinstance(write.effect, WriteDeadLetter):
            following = state.write_order.acknowledged(key)
        else:
            following = None if state.level is None else state.level.chain.writes.acknowledged(key)
        if isinstance(following, PendingWrite):
            _start(following, effects)


def _start_in_order(write: PendingWrite, order: KeyedWrites[bytes] | None, effects: list[Effect]) -> None:
    """Start the write, or queue it behind one of its key. Without `order`, and without a key, nothing is queued."""
    key = write.effect.record.raw_key
    if key is None or order is None or order.ask(key, write):
        _start(write, effects)
    else:
        write.is_writing = False
        write.is_queued = True


def _start(write: PendingWrite, effects: list[Effect]) -> None:
    write.is_queued = False
    write.is_writing = True
    effects.append(write.effect)
