"""A partition's state of one producer: its epoch, its last five batches, its open transaction."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from broker_embedded.storage.producer_snapshot import SnapshotEntry

NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1
MAX_SEQUENCE = 2**31 - 1

REMEMBERED_BATCHES = 5
"""max.in.flight.requests.per.connection of an idempotent producer is at most 5: that many can come again."""


class BatchMetadata(NamedTuple):
    """A batch that was appended, with the fields that identify a duplicate of it."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        """Sequences wrap from 2³¹-1 to 0."""
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE


class ProducerEntry:
    """Mutable, owned by `ProducerStateManager`."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_transaction_first_offset",
        "last_marker_offset",
        "last_timestamp_ms",
        "producer_epoch",
        "producer_id",
        "used_at_ms",
    )

    def __init__(self, producer_id: int, *, used_at_ms: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = NO_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp_ms = -1
        self.current_transaction_first_offset = NO_OFFSET
        self.last_marker_offset = NO_OFFSET
        """Offset of the marker that ended the producer's last transaction here, if this process has appended or read
        it."""
        self.batches: deque[BatchMetadata] = deque(maxlen=REMEMBERED_BATCHES)
        self.used_at_ms = used_at_ms
        """When the producer last appended, by the broker's clock: its state expires by this. Kafka uses the record's
        timestamp, so there a producer of old events is forgotten at once, and its duplicates are no longer
        recognised."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def find_duplicate(self, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """Return the remembered batch with exactly these sequences."""
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                return batch
        return None

    def add_batch(self, producer_epoch: int, batch: BatchMetadata) -> None:
        self.set_epoch(producer_epoch)
        self.batches.append(batch)
        self.last_timestamp_ms = batch.timestamp_ms

    def set_epoch(self, producer_epoch: int) -> None:
        """Set a new epoch, which restarts sequences: batches of the old one cannot be repeated any more."""
        if producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch

    def to_snapshot(self) -> SnapshotEntry:
        last = self.batches[-1] if self.batches else BatchMetadata(NO_SEQUENCE, NO_OFFSET, 0, -1)
        return SnapshotEntry(
            self.producer_id,
            self.producer_epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            self.last_timestamp_ms,
            self.coordinator_epoch,
            self.current_transaction_first_offset,
        )

    @classmethod
    def from_snapshot(cls, found: SnapshotEntry, *, used_at_ms: int) -> ProducerEntry:
        entry = cls(found.producer_id, used_at_ms=used_at_ms)
        entry.producer_epoch = found.producer_epoch
        entry.coordinator_epoch = found.coordinator_epoch
        entry.last_timestamp_ms = found.timestamp_ms
        entry.current_transaction_first_offset = found.current_transaction_first_offset
        if found.last_offset >= 0:
            entry.batches.append(
                BatchMetadata(found.last_sequence, found.last_offset, found.offset_delta, found.timestamp_ms)
            )
        return entry
