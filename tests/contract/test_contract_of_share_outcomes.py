"""Records of share groups that are never accepted: deleted, aborted, given up, or held for longer than their lock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from apache_kafka import wanted
from confluent_kafka import Consumer, Producer, TopicPartition
from share_member import ACCEPT, REJECT, RELEASE, Ranges, ShareMember, produce, ranges, set_group

from ottla_wire.protocol import ApiKey, ErrorCode

pytestmark = pytest.mark.skipif(
    (wanted() or "9") < "4.4", reason="share groups are those of Kafka 4.4: this version has not all of it"
)

_numbers = count(1)


@pytest.fixture
def topic(kafka: Any) -> str:
    name: str = kafka.create_topic()
    return name


@pytest.fixture
def member(bootstrap_servers: str, kafka: Any, topic: str) -> Iterator[ShareMember]:
    """A member of a group that begins with the first record and delivers twice."""
    group_id = f"outcomes-{os.getpid()}-{next(_numbers)}"
    set_group(kafka, group_id, "share.auto.offset.reset", "earliest")
    set_group(kafka, group_id, "share.delivery.count.limit", "2")
    member = ShareMember(bootstrap_servers, group_id)
    member.join(topic)
    yield member
    member.close()


def offsets(found: Ranges) -> set[int]:
    return {offset for first, last, _ in found for offset in range(first, last + 1)}


def test_records_that_were_deleted_are_passed_over(kafka: Any, topic: str, member: ShareMember) -> None:
    for _ in range(5):
        produce(kafka, topic, 2)
    assert member.acquire(topic, max_records=1) == [(0, 1, 1)]
    body = {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 4}]}], "timeout_ms": 5_000}
    assert kafka.call(ApiKey.DELETE_RECORDS, 2, body).topics[0].partitions[0].error_code == ErrorCode.NONE
    assert offsets(member.acquire(topic)) == {4, 5, 6, 7, 8, 9}
    assert member.acknowledge(topic, 4, 9, ACCEPT) == ErrorCode.NONE


def test_aborted_records_are_not_delivered_to_a_group_that_reads_what_is_committed(
    kafka: Any, bootstrap_servers: str, topic: str, member: ShareMember
) -> None:
    set_group(kafka, member.group_id, "share.isolation.level", "read_committed")
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for commits in (False, True):
        producer.begin_transaction()
        producer.produce(topic, b"t")
        producer.flush()
        if commits:
            producer.commit_transaction()  # offset 2; 3 is its marker
        else:
            producer.abort_transaction()  # offset 0; 1 is its marker
    produce(kafka, topic, 1)
    held: set[int] = set()
    while 4 not in held:
        held |= offsets(member.acquire(topic))
    assert held - {1, 3} == {2, 4}, "Kafka delivers the offsets of markers, as gaps"


def test_what_is_rejected_or_delivered_too_often_is_a_dead_letter(
    kafka: Any, bootstrap_servers: str, topic: str, member: ShareMember
) -> None:
    dead = f"dlq.{topic}"
    enabled = [{"name": "errors.deadletterqueue.group.enable", "value": "true"}]
    created = kafka.create(name=dead, num_partitions=1, replication_factor=1, configs=enabled)
    assert created.error_code == ErrorCode.NONE, created.error_message
    set_group(kafka, member.group_id, "errors.deadletterqueue.topic.name", dead)
    produce(kafka, topic, 2)
    assert member.acquire(topic) == [(0, 1, 1)]
    assert member.acknowledge(topic, 0, 0, REJECT) == ErrorCode.NONE
    assert member.acknowledge(topic, 1, 1, RELEASE) == ErrorCode.NONE
    assert member.acquire(topic) == [(1, 1, 2)]
    assert member.acknowledge(topic, 1, 1, RELEASE) == ErrorCode.NONE
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": dead, "enable.auto.commit": False})
    consumer.assign([TopicPartition(dead, 0, 0)])
    try:
        letters = [consumer.poll(30) for _ in range(2)]
    finally:
        consumer.close()
    assert [letter.value() for letter in letters] == [None, None]
    assert [dict(letter.headers()) for letter in letters] == [
        {
            "__dlq.errors.topic": topic.encode(),
            "__dlq.errors.partition": b"0",
            "__dlq.errors.offset": b"%d" % offset,
            "__dlq.errors.group": member.group_id.encode(),
            "__dlq.errors.delivery.count": b"%d" % deliveries,
            "__dlq.errors.message": message,
        }
        for offset, deliveries, message in (
            (0, 1, b"Offset rejected by client."),
            (1, 2, b"Offset delivery count exceeded the threshold."),
        )
    ]
    assert ranges(member.fetch(topic, max_wait_ms=500)) == []


@pytest.mark.complete
@pytest.mark.timeout(120)
def test_a_lock_that_ends_makes_the_record_available_and_its_acknowledgement_void(
    kafka: Any, bootstrap_servers: str, topic: str, member: ShareMember
) -> None:
    """It takes the shortest lock that a broker allows by default, 15 s."""
    set_group(kafka, member.group_id, "share.record.lock.duration.ms", "15000")
    produce(kafka, topic, 1)
    other = ShareMember(bootstrap_servers, member.group_id)
    other.join(topic)
    try:
        assert member.acquire(topic) == [(0, 0, 1)]
        assert other.acquire(topic, timeout_s=60) == [(0, 0, 2)]
        assert member.acknowledge(topic, 0, 0, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
        assert other.acknowledge(topic, 0, 0, ACCEPT) == ErrorCode.NONE
    finally:
        other.close()
