"""aiokafka's records as ours, in slices that keep the event loop for a millisecond at most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ottla.consumer.model.events import NOTHING_BEHIND, Behind, Fetched
from ottla.records import Record, TimestampType, TopicPartition
from ottla.telemetry.traces.packed_headers import packed

RECORD_OVERHEAD_BYTES: Final = 100
"""What a record takes in memory beyond its value, roughly: buffers are bounded in bytes too."""

SLICE_RECORDS: Final = 500

_TIMESTAMP_TYPES: Final = {
    0: TimestampType.CREATE_TIME,
    1: TimestampType.LOG_APPEND_TIME,
}


def size_of(messages: Sequence[Any]) -> int:
    """What messages take in memory."""
    return sum(len(message.value or b"") for message in messages) + RECORD_OVERHEAD_BYTES * len(messages)


def to_batches(name: TopicPartition, messages: Sequence[Any], *, behind: Behind = NOTHING_BEHIND) -> Iterator[Fetched]:
    """The records of one partition, in slices of at most `SLICE_RECORDS`."""
    topic, partition = name
    for start in range(0, len(messages), SLICE_RECORDS):
        size_bytes = 0
        records: list[Record[Any]] = []
        slice_ = messages[start : start + SLICE_RECORDS]
        all_headers = packed([message.headers for message in slice_])
        for message, headers in zip(slice_, all_headers, strict=True):
            key = message.key
            value = message.value
            size_bytes += RECORD_OVERHEAD_BYTES if value is None else len(value) + RECORD_OVERHEAD_BYTES
            records.append(
                Record(
                    topic,
                    partition,
                    message.offset,
                    message.timestamp,
                    key,
                    value,
                    headers,
                    key,
                    value,
                    _TIMESTAMP_TYPES.get(message.timestamp_type, TimestampType.NOT_AVAILABLE),
                )
            )
        yield Fetched(name, records, size_bytes, behind)


def slices_of(name: TopicPartition, records: Sequence[Record[Any]]) -> Iterator[Fetched]:
    """The same of records that are ours already."""
    for start in range(0, len(records), SLICE_RECORDS):
        part = list(records[start : start + SLICE_RECORDS])
        yield Fetched(name, part, sum(RECORD_OVERHEAD_BYTES + len(record.raw_value or b"") for record in part))
