"""confluent-kafka's messages become records, batch by batch."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Message
from hypothesis import given
from hypothesis import strategies as st

from ottla.consumer.model.events import Fetched
from ottla.consumer.model.memory import HEADER_BYTES, RECORD_BYTES, record_bytes
from ottla.records import Record, TimestampType, TopicPartition
from ottla.sync.consume.messages import ClientError, parted, to_records


def message(topic: str, partition: int, offset: int, **parts: object) -> Message:
    parts = {"value": b"12345", "timestamp": (1, 1_700_000_000_000), **parts}
    return Message(topic=topic, partition=partition, offset=offset, **parts)  # type: ignore[arg-type]


def to_batches(messages: list[Message], *, only_topic: str | None = None) -> tuple[list[Fetched], list[ClientError]]:
    by_partition, errors = parted(messages, only_topic=only_topic)
    return [Fetched(name, *to_records(name, own)) for name, own in by_partition], errors


def test_a_record_is_what_the_message_was() -> None:
    headers = [("trace", b"\xff"), ("null", None)]
    ((fetched,), errors) = to_batches([message("orders", 3, 7, key=b"k", headers=headers, timestamp=(2, 5))])

    assert errors == []
    assert fetched.topic_partition == TopicPartition("orders", 3)
    assert fetched.size_bytes == RECORD_BYTES + len(b"k") + 5 + 2 * HEADER_BYTES + len("trace") + 1 + len("null")
    assert record_bytes(fetched.records) == fetched.size_bytes
    (record,) = fetched.records
    assert (record.topic, record.partition, record.offset) == ("orders", 3, 7)
    assert (record.key, record.value, record.raw_key, record.raw_value) == (b"k", b"12345", b"k", b"12345")
    assert (record.timestamp_ms, record.timestamp_type) == (5, TimestampType.LOG_APPEND_TIME)
    assert record.headers == headers


def test_a_message_without_key_value_and_headers_has_none() -> None:
    ((fetched,), _) = to_batches([message("orders", 0, 0, value=None)])
    (record,) = fetched.records
    assert (record.key, record.value, record.headers) == (None, None, [])
    assert fetched.size_bytes == RECORD_BYTES


@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_error_among_messages_is_told_apart(at: int) -> None:
    messages = [message("orders", 0, 0), message("orders", 0, 1)]
    messages.insert(at, Message(topic="orders", partition=0, error=KafkaError(KafkaError._PARTITION_EOF)))
    ((fetched,), (error,)) = to_batches(messages)

    assert [record.offset for record in fetched.records] == [0, 1]
    assert (error.error.code(), error.place) == (KafkaError._PARTITION_EOF, TopicPartition("orders", 0))


def test_errors_alone_are_no_batch() -> None:
    assert to_batches([]) == ([], [])
    batches, (error,) = to_batches([Message(error=KafkaError(KafkaError._TRANSPORT))])
    assert batches == []
    assert (error.error.code(), error.place) == (KafkaError._TRANSPORT, None)


stretches = st.tuples(st.sampled_from(["orders", "payments"]), st.integers(0, 2), st.integers(1, 70))


@given(st.lists(stretches, max_size=12))
def test_what_came_of_a_partition_in_stretches_stays_together_and_in_its_order(
    arrived: list[tuple[str, int, int]],
) -> None:
    places = [TopicPartition(topic, number) for topic, number, count in arrived for _ in range(count)]
    by_partition, errors = parted([message(*place, at) for at, place in enumerate(places)])

    assert errors == []
    assert [name for name, _ in by_partition] == list(dict.fromkeys(places))
    for name, messages in by_partition:
        assert [each.offset() for each in messages] == [at for at, place in enumerate(places) if place == name]


@given(st.lists(st.tuples(st.sampled_from(["orders", "payments"]), st.integers(0, 2), st.integers(0, 9)), max_size=30))
def test_each_partition_has_its_records_in_their_order_and_their_size(
    arrived: list[tuple[str, int, int]],
) -> None:
    messages = [message(topic, number, at, value=b"x" * size) for at, (topic, number, size) in enumerate(arrived)]
    batches, _ = to_batches(messages)

    names = [fetched.topic_partition for fetched in batches]
    assert names == list(dict.fromkeys(TopicPartition(topic, number) for topic, number, _ in arrived))
    for fetched in batches:
        own = [
            (at, size) for at, (topic, number, size) in enumerate(arrived) if (topic, number) == fetched.topic_partition
        ]
        assert [record.offset for record in fetched.records] == [at for at, _ in own]
        assert all(isinstance(record, Record) for record in fetched.records)
        assert fetched.size_bytes == sum(size + RECORD_BYTES for _, size in own)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=30))
def test_who_has_one_topic_gets_the_same_without_asking_each_message_for_it(arrived: list[tuple[int, int]]) -> None:
    messages = [message("orders", number, at, value=b"x" * size) for at, (number, size) in enumerate(arrived)]
    found = [
        [(each.topic_partition, each.size_bytes, [repr(record) for record in each.records]) for each in batches]
        for batches, _ in (to_batches(messages, only_topic="orders"), to_batches(messages))
    ]
    assert found[0] == found[1]
