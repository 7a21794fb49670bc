"""The effects of a consumer session: values that say what the shells are to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import TypeAlias

from ottla.consumer.model.failed_writes import Write
from ottla.consumer.model.run import AnyRecord, Run
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
