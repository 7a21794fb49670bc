"""confluent-kafka's messages as records, batch by batch. The hottest loop of the shell: each question that a message is
asked costs as much as four lines of Python, so none is asked twice, and what is the same for all is asked in C.
[M: 0.34 µs per message instead of 0.40; asking alone is 0.21]
"""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final

from confluent_kafka import KafkaError, Message

from ottla.consumer.events import Fetched
from ottla.records import Record, TimestampType, TopicPartition

RECORD_OVERHEAD_BYTES: Final = 100
"""What a record takes in memory beyond its value, roughly: buffers are bounded in bytes too."""

_TIMESTAMP_TYPES: Final = (TimestampType.NOT_AVAILABLE, TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)


def to_batches(messages: list[Any], *, only_topic: str | None = None) -> tuple[list[Fetched], list[KafkaError]]:
    """The records per partition, in order of arrival, and the errors the client reported among them.

    `only_topic`: the one topic that the client is subscribed to, where it is one; then no message is asked for its own.
    """
    errors: list[KafkaError] = []
    if any(map(Message.error, messages)):
        errors = [error for error in map(Message.error, messages) if error is not None]
        messages = [message for message in messages if message.error() is None]
    if not messages:
        return [], errors
    count = len(messages)
    topics: list[Any] = list(map(Message.topic, messages)) if only_topic is None else [only_topic] * count
    partitions: list[Any] = list(map(Message.partition, messages))
    topic, partition = topics[0], partitions[0]
    if partitions.count(partition) == count and topics.count(topic) == count:
        # Usual: the client hands out a whole fetch of one partition at a time.
        return [_fetched(TopicPartition(topic, partition), messages)], errors
    by_partition: dict[TopicPartition, list[Any]] = {}
    start = 0
    for name, same in groupby(zip(topics, partitions, strict=True)):
        end = start + sum(1 for _ in same)
        by_partition.setdefault(TopicPartition(*name), []).extend(messages[start:end])
        start = end
    return [_fetched(name, each) for name, each in by_partition.items()], errors


def _fetched(name: TopicPartition, messages: list[Any]) -> Fetched:
    topic, partition = name
    kinds = _TIMESTAMP_TYPES
    records: list[Record[Any]] = []
    append = records.append
    for message in messages:
        kind, timestamp_ms = message.timestamp()
        key = message.key()
        value = message.value()
        append(
            Record(
                topic,
                partition,
                message.offset(),
                timestamp_ms,
                key,
                value,
                message.headers(),
                key,
                value,
                kinds[kind],
            )
        )
    return Fetched(name, records, sum(map(len, messages)) + RECORD_OVERHEAD_BYTES * len(messages))
