"""What the member of a share group answers its shell with, and what the shell brings it from brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from ottla.queues.core.acknowledgements import Place
from ottla.queues.core.lease import Lease
from ottla.topics import TopicPartition
from ottla_wire.facts import fact, positional_fact
from ottla_wire.protocol import ErrorCode


@fact
class SharePartitionAnswer:
    """What a broker answered for one partition."""

    place: Place
    error: ErrorCode = ErrorCode.NONE
    acknowledge_error: ErrorCode = ErrorCode.NONE
    acquired: Sequence[tuple[int, int, int]] = ()
    """First offset, last offset and delivery count of leased ranges."""
    records: Mapping[int, Any] = field(default_factory=dict)
    """The records by offset."""
    corrupt: str | None = None
    """Why some of the records could not be read."""

    def offsets(self, first: int, last: int) -> Sequence[int]:
        """Return the offsets from `first` to `last` that have a record. The range may be wide and hold few records."""
        records = self.records
        if last - first < len(records):
            return [offset for offset in range(first, last + 1) if offset in records]
        return sorted(offset for offset in records if first <= offset <= last)


@fact
class ShareAnswer:
    """What a broker answered to a ShareFetch or ShareAcknowledge. `lock_ms` is 0 where it does not say."""

    error: ErrorCode = ErrorCode.NONE
    lock_ms: int = 0
    partitions: Sequence[SharePartitionAnswer] = ()


@positional_fact
class HandOut:
    """Give each of these leases to a worker. Each is answered by `finished` or `waits`."""

    leases: Sequence[Lease]


@positional_fact
class LeaseLost:
    """The lease ended without an acknowledgement; its record is delivered again. A worker may still be busy with it."""

    lease: Lease
    why: str
    was_handled: bool
    """Whether it was handled already: what its handler did happens again."""


@positional_fact
class JobTimedOut:
    """The attempt has lasted `max_job_ms`. Answered by `settle` or `hold`; the worker may still be busy."""

    lease: Lease


@positional_fact
class Leased:
    """The broker leased so many records, each for the `delivery_count`th time."""

    topic_partition: TopicPartition
    delivery_count: int
    records: int


@positional_fact
class Settled:
    """The broker has taken so many acknowledgements of one kind."""

    topic_partition: TopicPartition
    kind: str
    records: int


@positional_fact
class AcknowledgementUnknown:
    """The connection ended before the broker answered: these acknowledgements may count or not."""

    node: int
    records: int
    why: str


@positional_fact
class RecordsUnreadable:
    """Records that were leased could not be read; they are released."""

    topic_partition: TopicPartition
    why: str


@positional_fact
class PartitionRefused:
    """The broker refuses to lease records of the partition, and no other broker will do it."""

    topic_partition: TopicPartition
    error: ErrorCode


@positional_fact
class Disconnect:
    """Close the connection to this broker: it keeps leases, which this member does not know, until it is closed."""

    node: int


@positional_fact
class FindLeaders:
    """Some broker does not lead what it led: ask for the leaders again, then call `lead`."""


Effect: TypeAlias = (
    HandOut
    | LeaseLost
    | JobTimedOut
    | Leased
    | Settled
    | AcknowledgementUnknown
    | RecordsUnreadable
    | PartitionRefused
    | Disconnect
    | FindLeaders
)
