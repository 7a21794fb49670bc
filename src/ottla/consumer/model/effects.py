"""The effects of a consumer session: values that say what the shells are to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Protocol, TypeAlias

from ottla.consumer.model.run import AnyRecord, Run
from ottla.failures.dead_letter import DeadLetterReason, DeadLetterRecord, Form, build_dead_letter, forms_of
from ottla.failures.retry_headers import RetryState, original_of
from ottla.records import TopicPartition
from ottla_wire.facts import positional_fact


@positional_fact
class Dispatch:
    """Give this run to a worker. Answered by `RunFinished`."""

    run: Run


@positional_fact
class PausePartitions:
    partitions: Sequence[TopicPartition]


@positional_fact
class ResumePartitions:
    partitions: Sequence[TopicPartition]


@positional_fact
class SeekPartition:
    topic_partition: TopicPartition
    offset: int


@positional_fact
class Commit:
    """Commit these positions with their metadata. `is_final`: wait for the answer, the partitions are revoked next."""

    offsets: Mapping[TopicPartition, tuple[int, str]]
    is_final: bool = False


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


@positional_fact
class FindRetryPositions:
    """Look up the start, the committed offset and the end of these retry partitions. Answered by
    `RetryPositionsFound`."""

    partitions: Sequence[TopicPartition]


@positional_fact
class FindStarts:
    """Claim these partitions in the store that has their offsets. Answered by `StartsFound` with the same epochs."""

    epochs: Mapping[TopicPartition, int]


@positional_fact
class PassOffsets:
    """Move the store forward to these offsets, unless a transaction has done so: all records before are settled."""

    offsets: Mapping[TopicPartition, int]


@positional_fact
class PassInTransaction:
    """`PassOffsets` for partitions whose offsets are committed in Kafka transactions: partition → epoch and offset."""

    offsets: Mapping[TopicPartition, tuple[int, int]]


@positional_fact
class LookAtLogs:
    """Look up the start, the end and the topic id of these partitions' logs. Answered by `LogsSeen`. For the partitions
    in `tails`, find the next record from that offset on."""

    epochs: Mapping[TopicPartition, int]
    tails: Mapping[TopicPartition, int] = MappingProxyType({})


@positional_fact
class Expired:
    """Count these records in the metrics: they expired, and are not delivered to the handler of `route` any more."""

    topic_partition: TopicPartition
    route: str
    records: Sequence[AnyRecord]


@positional_fact
class Notice:
    """Log this event. There is never one per successful record."""

    event: str
    level: str = "info"
    fields: Mapping[str, object] = field(default_factory=dict)


Effect: TypeAlias = (
    Dispatch
    | PausePartitions
    | ResumePartitions
    | SeekPartition
    | Commit
    | Write
    | FindRetryPositions
    | FindStarts
    | PassOffsets
    | PassInTransaction
    | LookAtLogs
    | Expired
    | Notice
)
