"""What a consumer session wants done. The shells do it; nothing here does anything."""

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
    """Give this run to a worker, and answer with `RunFinished`."""

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
    """Commit these positions with their metadata. `is_final`: wait for the answer, the partitions go away next."""

    offsets: Mapping[TopicPartition, tuple[int, str]]
    is_final: bool = False


@positional_fact
class WriteDeadLetter:
    """Produce this record to `dead_letter_topic`, and answer `WriteAcknowledged` when it is acknowledged."""

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
        """The whole record to produce: one out of a retry topic as it was in its own topic."""
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
        """What to produce: the first of these that the topic takes. Made one by one, as they are asked for."""
        yield from forms_of(self.build())


@positional_fact
class WriteRetry:
    """Produce this record to a retry topic, and answer as for a dead letter."""

    topic_partition: TopicPartition
    epoch: int
    record: AnyRecord
    target: str
    target_partition: int
    number: int
    """Which retry topic it is; 1 is the first."""
    state: RetryState

    def build(self) -> DeadLetterRecord:
        """The record to produce."""
        record = self.record
        return DeadLetterRecord(record.raw_key, record.raw_value, self.state.to_headers(record.headers))

    def forms(self) -> Iterator[tuple[Form, DeadLetterRecord]]:
        """What to produce: the first of these that the topic takes. A record without its value cannot be handled."""
        yield Form.WHOLE, self.build()
        if self.state.error_type or self.state.message:
            short = self.state.without_error().to_headers(self.record.headers)
            yield Form.BARE, DeadLetterRecord(self.record.raw_key, self.record.raw_value, short)


Write: TypeAlias = WriteDeadLetter | WriteRetry
"""A record that is settled here once it is acknowledged there."""


class OnWritten(Protocol):
    """How a sink answers: once per letter, with None when it is acknowledged, else with the error."""

    def __call__(self, letter: Write, error: str | None, /, *, form: Form = Form.WHOLE, fits: bool = True) -> None:
        """`form`: in which form it was acknowledged. `fits`: False when the topic takes it in none."""


@positional_fact
class FindRetryPositions:
    """Look up where these partitions of retry topics begin, are committed, and end; answer `RetryPositionsFound`."""

    partitions: Sequence[TopicPartition]


@positional_fact
class FindStarts:
    """Claim these partitions in the store that keeps their offsets; answer `StartsFound` with the same epochs."""

    epochs: Mapping[TopicPartition, int]


@positional_fact
class PassOffsets:
    """Everything before these offsets is settled: the store may move forward, where a transaction has not done so."""

    offsets: Mapping[TopicPartition, int]


@positional_fact
class PassInTransaction:
    """The same for partitions whose offsets are committed in Kafka transactions: partition → epoch and offset."""

    offsets: Mapping[TopicPartition, tuple[int, int]]


@positional_fact
class LookAtLogs:
    """Look up where the logs of these partitions begin and end, and of which topic they are; answer `LogsSeen`. Of the
    partitions in `tails`, find out where the next record is from that offset on."""

    epochs: Mapping[TopicPartition, int]
    tails: Mapping[TopicPartition, int] = MappingProxyType({})


@positional_fact
class Expired:
    """These records had expired, and were not handed to the handler of `route`, or not again: for metrics."""

    topic_partition: TopicPartition
    route: str
    records: Sequence[AnyRecord]


@positional_fact
class Notice:
    """Something worth a log line: the event's name and its fields. Never one per record that went well."""

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
