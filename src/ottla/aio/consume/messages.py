"""aiokafka's records as ours, in slices that keep the event loop for a millisecond at most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ottla.consumer.model.events import NOTHING_BEHIND, Behind, Fetched
from ottla.consumer.model.memory import RECORD_BYTES, header_bytes, record_bytes
from ottla.records import Record, TimestampType, TopicPartition
from ottla.telemetry.traces.packed_headers import packed

SLICE_RECORDS: Final = 500

_TIMESTAMP_TYPES: Final = {
    0: TimestampType.CREATE_TIME,
    1: TimestampType.LOG_APPEND_TIME,
}


def size_of(messages: Sequence[Any]) -> int:
    """Return how many bytes of memory messages take."""
    parts = sum(len(message.key or b"") + len(message.value or b"") for message in messages)
    return RECORD_BYTES * len(messages) + parts + header_bytes(message.headers for message in messages)


def to_batches(name: TopicPartition, messages: Sequence[Any], *, behind: Behind = NOTHING_BEHIND) -> Iterator[Fetched]:
    """Yield the records of one partition, in slices of at most `SLICE_RECORDS`."""
    topic, partition = name
    for start in range(0, len(messages), SLICE_RECORDS):
        records: list[Record[Any]] = []
        slice_ = messages[start : start + SLICE_RECORDS]
        found: list[Any] = [message.headers for message in slice_]
        size_bytes = RECORD_BYTES * len(slice_) + (header_bytes(found) if any(found) else 0)
        for message, headers in zip(slice_, packed(found), strict=True):
            key = message.key
            value = message.value
            if key is not None:
                size_bytes += len(key)
            if value is not None:
                size_bytes += len(value)
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
    """Yield records that are ours already, in the same slices."""
    for start in range(0, len(records), SLICE_RECORDS):
        part = list(records[start : start + SLICE_RECORDS])
        yield Fetched(name, part, record_bytes(part))
