"""confluent-kafka's messages as records, batch by batch. The hottest loop of the shell: each question that a message is
asked costs as much as four lines of Python, so none is asked twice, and what is the same for all is asked in C.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, Message

from ottla.consumer.model.events import Fetched
from ottla.records import Record, TimestampType, TopicPartition
from ottla.sync.client.headers import ReadAgain, all_headers

RECORD_OVERHEAD_BYTES: Final = 100
"""What a record takes in memory beyond its value, roughly: buffers are bounded in bytes too."""

_TIMESTAMP_TYPES: Final = (TimestampType.NOT_AVAILABLE, TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)


class ClientError(NamedTuple):
    """What the client reported in place of a record, and of which partition, if it is of one."""

    error: KafkaError
    place: TopicPartition | None


def to_batches(
    messages: list[Any],
    *,
    only_topic: str | None = None,
    read_again: ReadAgain = lambda _message: None,
    priority_of: Mapping[str, int] | None = None,
) -> tuple[Iterator[Fetched], list[ClientError]]:
    """The records per partition, in order of arrival, and the errors the client reported among them.

    `only_topic`: the one topic that the client is subscribed to, where it is one; then no message is asked for its own.
    `read_again` gives the headers of a message that cannot be asked for them; where it has none, the records of that
    partition end before it. `priority_of`: partitions of topics with a lower number come first. Records are made when
    they are asked for, so that those of one partition need not wait for those of the next.
    """
    errors: list[ClientError] = []
    if any(map(Message.error, messages)):
        errors = [_client_error(message) for message in messages if message.error() is not None]
        messages = [message for message in messages if message.error() is None]
    by_partition = _by_partition(messages, only_topic) if messages else []
    if priority_of is not None and len(by_partition) > 1:
        by_partition.sort(key=lambda each: priority_of.get(each[0].topic, 0))
    return _made(by_partition, read_again), errors


def _by_partition(messages: list[Any], only_topic: str | None) -> list[tuple[TopicPartition, list[Any]]]:
    count = len(messages)
    topics: list[Any] = list(map(Message.topic, messages)) if only_topic is None else [only_topic] * count
    partitions: list[Any] = list(map(Message.partition, messages))
    topic, partition = topics[0], partitions[0]
    if partitions.count(partition) == count and topics.count(topic) == count:
        # Usual: the client hands out a whole fetch of one partition at a time.
        return [(TopicPartition(topic, partition), messages)]
    found: dict[TopicPartition, list[Any]] = {}
    start = 0
    for name, same in groupby(zip(topics, partitions, strict=True)):
        end = start + sum(1 for _ in same)
        found.setdefault(TopicPartition(*name), []).extend(messages[start:end])
        start = end
    return list(found.items())


def _made(by_partition: list[tuple[TopicPartition, list[Any]]], read_again: ReadAgain) -> Iterator[Fetched]:
    for name, messages in by_partition:
        fetched = _fetched(name, messages, read_again)
        if fetched.records:
            yield fetched


def _client_error(message: Any) -> ClientError:
    topic, partition = message.topic(), message.partition()
    is_of_one = topic is not None and partition is not None and partition >= 0
    return ClientError(message.error(), TopicPartition(topic, partition) if is_of_one else None)


def _fetched(name: TopicPartition, messages: list[Any], read_again: ReadAgain) -> Fetched:
    topic, partition = name
    kinds = _TIMESTAMP_TYPES
    records: list[Record[Any]] = []
    append = records.append
    found = all_headers(messages, read_again)
    if len(found) < len(messages):
        messages = messages[: len(found)]
    for message, headers in zip(messages, found, strict=True):
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
                headers,
                key,
                value,
                kinds[kind],
            )
        )
    return Fetched(name, records, sum(map(len, messages)) + RECORD_OVERHEAD_BYTES * len(messages))
