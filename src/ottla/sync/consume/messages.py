"""Converts confluent-kafka's messages to records, batch by batch. This is the hottest loop of the shell: each method
call on a message costs as much as four lines of Python, so none is made twice, and values common to all are read in C.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, Message

from ottla.consumer.model.memory import RECORD_BYTES, header_bytes
from ottla.records import Record, TimestampType, TopicPartition
from ottla.sync.client.headers import ReadAgain, all_headers
from ottla.telemetry.traces.packed_headers import packed

_TIMESTAMP_TYPES: Final = (TimestampType.NOT_AVAILABLE, TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)


class ClientError(NamedTuple):
    """An error that the client reported in place of a record, and the partition or topic that it concerns."""

    error: KafkaError
    place: TopicPartition | None
    topic: str | None = None


def parted(
    messages: list[Any], *, only_topic: str | None = None
) -> tuple[list[tuple[TopicPartition, list[Any]]], list[ClientError]]:
    """Return the messages of each partition, in order of arrival, and the errors that the client reported among them.
    `only_topic` is the only subscribed topic, if there is just one: then no message's topic is read."""
    errors: list[ClientError] = []
    if any(map(Message.error, messages)):
        errors = [_client_error(message) for message in messages if message.error() is not None]
        messages = [message for message in messages if message.error() is None]
    return _by_partition(messages, only_topic) if messages else [], errors


def to_records(
    name: TopicPartition, messages: Sequence[Any], *, read_again: ReadAgain = lambda _message: None
) -> tuple[list[Record[Any]], int]:
    """Return messages of one partition as its records, and how many bytes of memory these take.

    `read_again` gives the headers of a message that cannot be asked for them; where it has none, the records end before
    it.
    """
    topic, partition = name
    kinds = _TIMESTAMP_TYPES
    records: list[Record[Any]] = []
    append = records.append
    found = all_headers(messages, read_again)
    if len(found) < len(messages):
        messages = messages[: len(found)]
    keys: list[Any] = list(map(Message.key, messages))
    for message, key, headers in zip(messages, keys, packed(found), strict=True):
        kind, timestamp_ms = message.timestamp()
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
    size_bytes = RECORD_BYTES * len(messages) + sum(map(len, messages)) + sum(map(len, filter(None, keys)))
    if any(found):
        size_bytes += header_bytes(found)
    return records, size_bytes


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
    while start < count:
        end = _stretch_end(topics, partitions, start)
        found.setdefault(TopicPartition(topics[start], partitions[start]), []).extend(messages[start:end])
        start = end
    return list(found.items())


def _stretch_end(topics: list[Any], partitions: list[Any], start: int) -> int:
    """Return the index behind the last message in a row that is of the same partition as the one at `start`. A response
    has a partition's messages together, often thousands: they are counted in C, in steps that grow and shrink."""
    topic, partition = topics[start], partitions[start]
    end, step = start + 1, 1
    is_near = False
    while step:
        stop = end + step
        length = min(stop, len(topics)) - end
        if length and partitions[end:stop].count(partition) == length == topics[end:stop].count(topic):
            end += length
            step = step // 2 if is_near else 2 * step
        else:
            is_near = True
            step //= 2
    return end


def _client_error(message: Any) -> ClientError:
    topic, partition = message.topic(), message.partition()
    is_of_one = topic is not None and partition is not None and partition >= 0
    return ClientError(message.error(), TopicPartition(topic, partition) if is_of_one else None, topic)
