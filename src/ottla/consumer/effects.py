"""What a consumer session wants done. The shells do it; nothing here does anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ottla.consumer.run import AnyRecord, Run
from ottla.delivery.dead_letter import DeadLetterReason, DeadLetterRecord, build_dead_letter
from ottla.records import TopicPartition


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Give this run to a worker, and answer with `RunFinished`."""

    run: Run


@dataclass(frozen=True, slots=True)
class PausePartitions:
    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class ResumePartitions:
    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class SeekPartition:
    topic_partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit these positions with their metadata. `is_final`: wait for the answer, the partitions go away next."""

    offsets: Mapping[TopicPartition, tuple[int, str]]
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class WriteDeadLetter:
    """Produce this record to `dead_letter_topic`, and answer `DeadLetterWritten` when it is acknowledged."""

    topic_partition: TopicPartition
    epoch: int
    record: AnyRecord
    dead_letter_topic: str
    reason: DeadLetterReason

    def build(self) -> DeadLetterRecord:
        """The record to produce."""
        record = self.record
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


@dataclass(frozen=True, slots=True)
class Notice:
    """Something worth a log line: the event's name and its fields. Never one per record that went well."""

    event: str
    level: str = "info"
    fields: Mapping[str, object] = field(default_factory=dict)


Effect: TypeAlias = Dispatch | PausePartitions | ResumePartitions | SeekPartition | Commit | WriteDeadLetter | Notice
