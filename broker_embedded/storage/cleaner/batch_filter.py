"""One batch of a log under compaction: kept as it is, rewritten with fewer records, kept empty, or dropped.

Tombstones and markers of emptied transactions are not dropped when they are first met: the batch gets a delete horizon
(now + delete.retention.ms, stored in its base timestamp, KIP-534) and loses them in the first cleaning after that, so
that a consumer which reads within that time sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker_embedded.storage.batch_walk import BatchAt
from broker_embedded.storage.cleaner.offset_map import OffsetMap
from broker_embedded.storage.producer_entry import NO_OFFSET, ProducerEntry
from ottla_wire.records.batch import LOG_APPEND_TIME_FLAG, BatchHeader
from ottla_wire.records.compression import CompressionType
from ottla_wire.records.record import RecordData, decode_batch, encode_batch


class LastOfProducer(NamedTuple):
    """An active producer's last data batch or marker, which compaction must keep."""

    last_data_offset: int
    producer_epoch: int

    @classmethod
    def of(cls, entries: Mapping[int, ProducerEntry]) -> dict[int, LastOfProducer]:
        return {i: cls(entry.last_data_offset, entry.producer_epoch) for i, entry in entries.items()}

    def is_in(self, header: BatchHeader) -> bool:
        if self.last_data_offset != NO_OFFSET:
            return header.last_offset == self.last_data_offset
        return header.is_control and header.producer_epoch == self.producer_epoch


class BatchFilter:
    """The decision for each batch of one cleaning round."""

    def __init__(
        self,
        offsets: OffsetMap,
        *,
        active_producers: Mapping[int, LastOfProducer],
        high_watermark: int,
        delete_retention_ms: int,
        now_ms: int,
    ) -> None:
        self._offsets = offsets
        self._active_producers = active_producers
        self._high_watermark = high_watermark
        self._delete_retention_ms = delete_retention_ms
        self._now_ms = now_ms

    def apply(self, batch: BatchAt, *, can_discard: bool) -> bytes | memoryview | None:
        """Return the bytes that replace the batch; None if it is dropped. `can_discard` is the transactions'
        verdict.
        """
        header = batch.header
        horizon_ms = header.delete_horizon_ms
        discards_all = can_discard
        if header.is_control:
            discards_all = can_discard and horizon_ms is not None and horizon_ms <= self._now_ms
        must_stay = self._must_stay(header)
        if discards_all:
            return self._empty(header) if must_stay else None
        records = decode_batch(batch.data)
        kept = records if header.is_control else [record for record in records if self._is_kept(record, horizon_ms)]
        if not kept:
            return self._empty(header) if must_stay else None
        has_tombstones = any(record.value is None for record in kept)
        if horizon_ms is None and (has_tombstones or (can_discard and header.is_control)):
            return _rewritten(header, kept, delete_horizon_ms=self._now_ms + self._delete_retention_ms)
        if len(kept) == len(records):
            return batch.data
        return _rewritten(header, kept, delete_horizon_ms=horizon_ms)

    def _must_stay(self, header: BatchHeader) -> bool:
        """Return whether the batch stays although it has no records left: it has a producer's last sequence, or it ends
        the log.

        The end of a cleaned segment is not kept, as in Kafka: some clients (librdkafka, segmentio's) read up to the
        next offset that they know. An empty batch at the end of a segment would make them fetch the offsets between two
        segments for ever.
        """
        last = self._active_producers.get(header.producer_id) if header.has_producer_id else None
        return (last is not None and last.is_in(header)) or header.next_offset == self._high_watermark

    def _is_kept(self, record: RecordData, horizon_ms: int | None) -> bool:
        if record.offset > self._offsets.latest_offset:
            return True
        if record.key is None:
            return False
        is_last_of_key = record.offset >= self._offsets.get(record.key)
        is_tombstone_due = record.value is None and horizon_ms is not None and self._now_ms >= horizon_ms
        return is_last_of_key and not is_tombstone_due

    @staticmethod
    def _empty(header: BatchHeader) -> bytes:
        return encode_batch(
            [],
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            leader_epoch=header.partition_leader_epoch,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
            timestamp_type=header.timestamp_type,
            max_timestamp_ms=header.max_timestamp,
        )


def _rewritten(header: BatchHeader, kept: list[RecordData], *, delete_horizon_ms: int | None) -> bytes:
    """Return the rewritten batch. Base and last offset, producer and sequences stay: it covers the same offsets."""
    return encode_batch(
        kept,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        compression=CompressionType(header.compression),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        leader_epoch=header.partition_leader_epoch,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        timestamp_type=header.timestamp_type,
        max_timestamp_ms=header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None,
        delete_horizon_ms=delete_horizon_ms,
    )
