"""Finding records by their timestamp. Only the batches that may hold the answer are opened."""

from __future__ import annotations

from broker_embedded.storage.append import TimestampOffset
from broker_embedded.storage.batch_walk import BatchAt
from broker_embedded.storage.segments import Segments
from ottla_wire.records.batch import LOG_APPEND_TIME_FLAG
from ottla_wire.records.record import decode_batch


def first_record_from(segments: Segments, timestamp_ms: int, *, log_start_offset: int) -> TimestampOffset | None:
    """The first record, by offset, whose timestamp is >= `timestamp_ms`."""
    for segment in segments:
        if segment.max_timestamp.timestamp_ms < timestamp_ms:
            continue
        for batch in segment.locate_by_timestamp(timestamp_ms, log_start_offset):
            found = _first_in(batch, timestamp_ms, log_start_offset)
            if found is not None:
                return found
    return None


def newest_record(segments: Segments, *, log_start_offset: int, log_end_offset: int) -> TimestampOffset | None:
    """The first record with the largest timestamp."""
    best = max(segments, key=lambda segment: segment.max_timestamp.timestamp_ms)
    located = best.locate(best.max_timestamp.offset)
    if located is not None and located.base_offset >= log_start_offset:
        batch = best.batch_at(located)
        return _first_in(batch, batch.header.max_timestamp, log_start_offset)
    newest: TimestampOffset | None = None  # the youngest record may have been deleted: look at what is left
    for segment in segments.holding(log_start_offset, log_end_offset):
        for batch in segment.batches():
            if newest is None or batch.header.max_timestamp > newest.timestamp_ms:
                newest = _newest_in(batch, newest, log_start_offset)
    return newest


def _first_in(batch: BatchAt, timestamp_ms: int, log_start_offset: int) -> TimestampOffset | None:
    header = batch.header
    epoch = header.partition_leader_epoch
    if header.attributes & LOG_APPEND_TIME_FLAG:  # one time for all records: no need to open the batch
        offset = max(header.base_offset, log_start_offset)
        return TimestampOffset(header.max_timestamp, offset, epoch) if header.record_count else None
    for record in decode_batch(batch.data):
        if record.timestamp_ms >= timestamp_ms and record.offset >= log_start_offset:
            return TimestampOffset(record.timestamp_ms, record.offset, epoch)
    return None


def _newest_in(batch: BatchAt, newest: TimestampOffset | None, log_start_offset: int) -> TimestampOffset | None:
    for record in decode_batch(batch.data):
        is_left = record.offset >= log_start_offset
        if is_left and (newest is None or record.timestamp_ms > newest.timestamp_ms):
            newest = TimestampOffset(record.timestamp_ms, record.offset, batch.header.partition_leader_epoch)
    return newest
