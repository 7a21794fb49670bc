"""The effects that write a failed record to a dead letter topic or a retry topic, and the forms of such a record: the
first one that the topic takes is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeAlias

from ottla.consumer.model.run import AnyRecord
from ottla.errors import InputError
from ottla.failures.dead_letter import DeadLetterReason, DeadLetterRecord, Form, build_dead_letter, forms_of
from ottla.failures.retry_headers import RetryState, original_of
from ottla.records import TopicPartition
from ottla_wire.facts import positional_fact


@positional_fact
class WriteDeadLetter:
    """Produce this record to `dead_letter_topic`. Answered by `WriteAcknowledged` or `WriteFailed`."""

    topic_partition: TopicPartition
    epoch: int
    record: AnyRecord
    dead_letter_topic: str
    reason: DeadLetterReason

    @property
    def target(self) -> str:
        return self.dead_letter_topic

    @property
    def target_partition(self) -> int | None:
        return None

    def build(self) -> DeadLetterRecord:
        """Return the record to produce in full. One out of a retry topic is as it was in its own topic."""
        record = original_of(self.record)
        return build_dead_letter(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            key=record.raw_key,
            value=record.raw_value,
            headers=record.headers,
            reason=self.reason,
        )

    def forms(self) -> Iterator[tuple[Form, DeadLetterRecord]]:
        """Yield the forms of the dead letter, largest first: the first one that the topic takes is produced."""
        yield from forms_of(self.build())


@positional_fact
class WriteRetry:
    """Produce this record to a retry topic. Answered as `WriteDeadLetter` is."""

    topic_partition: TopicPartition
    epoch: int
    record: AnyRecord
    target: str
    target_partition: int
    number: int
    """Which retry topic it is; 1 is the first."""
    state: RetryState

    def build(self) -> DeadLetterRecord:
        """Return the record to produce in full."""
        record = self.record
        return DeadLetterRecord(record.raw_key, record.raw_value, self.state.to_headers(record.headers))

    def forms(self) -> Iterator[tuple[Form, DeadLetterRecord]]:
        """Yield the forms of the record, largest first. All have the value: without it a record cannot be handled."""
        yield Form.WHOLE, self.build()
        if self.state.error_type or self.state.message:
            short = self.state.without_error().to_headers(self.record.headers)
            yield Form.BARE, DeadLetterRecord(self.record.raw_key, self.record.raw_value, short)


Write: TypeAlias = WriteDeadLetter | WriteRetry
"""A write of a failed record, which is settled when the write is acknowledged."""


class OnWritten(Protocol):
    """The callback of a sink, called once per write: with None if it was acknowledged, otherwise with the error."""

    def __call__(self, write: Write, error: str | None, /, *, form: Form = Form.WHOLE, fits: bool = True) -> None:
        """Report the write. `form`: the form that was acknowledged. `fits`: False if the topic takes the record in no
        form."""


class FormsToWrite:
    """The forms of one failed record, largest first, until one is written or the write is given up.

    `on_written` is called exactly once: with the form that was acknowledged, or with what went wrong.
    """

    def __init__(self, failed_write: Write, on_written: OnWritten) -> None:
        self._failed_write = failed_write
        self._on_written = on_written
        self._forms = failed_write.forms()
        self._form = Form.WHOLE
        self._refusal: Exception | None = None

    def next(self) -> DeadLetterRecord | None:
        """Return the next form to send; None if none is left, which has been reported."""
        try:
            self._form, dead = next(self._forms)
        except StopIteration:
            self._on_written(self._failed_write, _said(self._refusal), fits=False)
            return None
        except Exception as error:  # it cannot be made: it is tried again, then the partition stops and says why
            self._on_written(self._failed_write, _said(error))
            return None
        return dead

    def is_settled(self, error: Exception | None) -> bool:
        """Process the result of a send. Returns False if brokers refuse this form as too large: the next one is due."""
        if isinstance(error, InputError) and error.is_too_large:
            self._refusal = error
            return False
        if error is None:
            self._on_written(self._failed_write, None, form=self._form)
        else:
            self._on_written(self._failed_write, _said(error))
        return True


def _said(error: Exception | None) -> str:
    return f"{type(error).__name__}: {error}"
