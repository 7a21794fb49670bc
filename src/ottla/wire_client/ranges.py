"""What is read: ranges of offsets, which records of transactions they show, and what to do where offsets are gone."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from ottla.topics import TopicPartition
from ottla_wire.facts import fact


class Isolation(Enum):
    """Which records of transactions are shown (`isolation.level`)."""

    READ_UNCOMMITTED = 0
    """All records, including records of open and aborted transactions."""
    READ_COMMITTED = 1
    """Only records outside of transactions and of committed ones."""


class OnDataLoss(Enum):
    """What to do when wanted offsets are no longer in the partition.

    FAIL: an error that names them. The others are logged. EARLIEST: go on at the first offset that is left. LATEST:
    give up the rest of the range. SKIP: go on at the next offset that is there, and never at an earlier one: where a
    partition has become shorter, what was read is not read again.
    """

    FAIL = "fail"
    """Raise an error that names the offsets."""
    EARLIEST = "earliest"
    """Log, and go on at the first offset that is left."""
    LATEST = "latest"
    """Log, and give up the rest of the range."""
    SKIP = "skip"
    """Log, and continue at the next available offset, never at an earlier one."""


LossRule: TypeAlias = OnDataLoss | Callable[[TopicPartition], OnDataLoss]
"""One policy for all partitions, or a function that knows the policy of each."""


@fact
class OffsetRange:
    """Offsets of one partition: `start` is the first one wanted, `end` the first one not wanted.

    With a `topic_id` (KIP-516) they are of this very topic, and never of another one that has its name since.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: bytes | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """An upper bound of its records: offsets may have gaps."""
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


@fact
class DataLoss:
    """Offsets that were wanted and are gone."""

    topic: str
    partition: int
    first_missing: int
    """The first offset that is gone."""
    resumed_at: int
    """The offset at which reading continues."""
