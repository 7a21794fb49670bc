"""confluent-kafka's messages as records, batch by batch. The hottest loop of the shell: about 1.5 µs per message."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaError

from ottla.consumer.events import Fetched
from ottla.records import Record, TimestampType, TopicPartition

RECORD_OVERHEAD_BYTES: Final = 100
"""What a record takes in memory beyond its value, roughly: buffers are bounded in bytes too."""

_TIMESTAMP_TYPES: Final = (TimestampType.NOT_AVAILABLE, TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)


def to_batches(messages: list[Any]) -> tuple[list[Fetched], list[KafkaError]]:
    """The records per partition, in order of arrival, and the errors the client reported among them."""
    batches: dict[TopicPartition, list[Record[Any]]] = {}
    sizes: dict[TopicPartition, int] = {}
    errors: list[KafkaError] = []
    last_topic: str | None = None
    last_partition = -1
    name = TopicPartition("", -1)
    records: list[Record[Any]] = []
    size_bytes = 0
    kinds = _TIMESTAMP_TYPES
    for message in messages:
        error = message.error()
        if error is not None:
            errors.append(error)
            continue
        topic = message.topic()
        partition = message.partition()
        if partition != last_partition or topic != last_topic:
            # Runs of one partition are long: the client hands out a whole fetch at a time.
            if last_topic is not None:
                sizes[name] = size_bytes
            last_topic, last_partition = topic, partition
            name = TopicPartition(topic, partition)
            records = batches.setdefault(name, [])
            size_bytes = sizes.get(name, 0)
        kind, timestamp_ms = message.timestamp()
        key = message.key()
        value = message.value()
        size_bytes += len(message) + RECORD_OVERHEAD_BYTES
        records.append(
            Record(
                topic,
                partition,
                message.offset(),
                timestamp_ms,
                key,
                value,
                message.headers() or [],
                key,
                value,
                kinds[kind],
            )
        )
    if last_topic is not None:
        sizes[name] = size_bytes
    return [Fetched(each, batch, sizes[each]) for each, batch in batches.items()], errors
