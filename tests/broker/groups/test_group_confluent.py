"""confluent-kafka consumer groups, unmodified, against the embedded broker: both protocols."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from broker_embedded.cluster import EmbeddedCluster

CLASSIC = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 50}
MODERN = {"group.protocol": "consumer"}


class Member:
    """A consumer, what it owns and what it read."""

    def __init__(self, bootstrap_servers: str, group: str, topic: str, **settings: Any) -> None:
        self.values: list[int] = []
        self.failures: list[KafkaError] = []
        self.is_open = True
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self.consumer.subscribe([topic])

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is None:
            return
        if message.error():
            self.failures.append(message.error())
        else:
            self.values.append(int(message.value()))

    def owned(self) -> set[int]:
        return {partition.partition for partition in self.consumer.assignment()} if self.is_open else set()

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self.consumer.close()


@pytest.fixture
def start(cluster: EmbeddedCluster, topic: str, request: pytest.FixtureRequest) -> Iterator[Callable[..., Member]]:
    """Starts members of the test's group; they are closed when it ends."""
    members: list[Member] = []

    def start(**settings: Any) -> Member:
        member = Member(cluster.bootstrap_servers, topic, topic, **settings)
        members.append(member)
        return member

    yield start
    for member in members:
        member.close()


def poll_all(*members: Member) -> Callable[[], None]:
    return lambda: [member.poll() for member in members][-1]


@pytest.fixture(params=["range", "roundrobin", "cooperative-sticky", "uniform (KIP-848)", "range (KIP-848)"])
def protocol(request: pytest.FixtureRequest, cluster: EmbeddedCluster) -> dict[str, object]:
    name, _, is_modern = request.param.partition(" ")
    if is_modern:
        return {**MODERN, "group.remote.assignor": name}
    return {**CLASSIC, "partition.assignment.strategy": name}


@pytest.mark.representative("range")
def test_members_share_the_partitions_as_they_come_and_go(start, until, protocol):
    first = start(**protocol)
    until(lambda: first.owned() == set(range(6)), first.poll)
    second = start(**protocol)
    until(lambda: len(first.owned()) == len(second.owned()) == 3, poll_all(first, second))
    assert first.owned() | second.owned() == set(range(6))
    first.close()
    until(lambda: second.owned() == set(range(6)), second.poll)
    assert not first.failures
    assert not second.failures


@pytest.mark.representative("range (KIP-848)")
def test_two_members_read_every_record_and_committed_offsets_carry_over(start, until, protocol):
    first = start(**protocol)
    until(lambda: len(first.values) == 60, first.poll)
    assert sorted(first.values) == list(range(60))
    first.consumer.commit(asynchronous=False)
    first.close()
    second = start(**protocol)
    until(lambda: second.owned() == set(range(6)), second.poll)
    committed = second.consumer.committed([TopicPartition(second.consumer.assignment()[0].topic, n) for n in range(6)])
    assert [partition.offset for partition in committed] == [10] * 6
    until_quiet = time.monotonic() + 0.3
    until(lambda: time.monotonic() > until_quiet, second.poll)
    assert second.values == []


def test_a_static_member_that_restarts_does_not_move_the_others_partitions(start, until):
    settings = {**CLASSIC, "partition.assignment.strategy": "range"}
    first = start(**settings, **{"group.instance.id": "i0"})
    until(lambda: len(first.owned()) == 6, first.poll)
    second = start(**settings, **{"group.instance.id": "i1"})
    until(lambda: len(first.owned()) == len(second.owned()) == 3, poll_all(first, second))
    before = (first.owned(), second.owned())
    second.close()
    again = start(**settings, **{"group.instance.id": "i1"})
    until(lambda: len(again.owned()) == 3, poll_all(first, again))
    assert (first.owned(), again.owned()) == before


def test_a_pattern_is_resolved_by_the_broker_in_the_new_protocol(cluster, until, request):
    prefix = "pattern"
    for suffix in ("a", "b"):
        cluster.create_topic(f"{prefix}-{suffix}", partitions=2)
    member = Member(cluster.bootstrap_servers, f"{prefix}-group", f"^{prefix}-.*", **MODERN)
    try:
        until(lambda: len(member.consumer.assignment()) == 4, member.poll)
        cluster.create_topic(f"{prefix}-c", partitions=1)
        until(lambda: len(member.consumer.assignment()) == 5, member.poll)
    finally:
        member.close()


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


@pytest.mark.parametrize("settings", [{**CLASSIC, "partition.assignment.strategy": "range"}, MODERN])
def test_an_operator_sees_a_group_moves_its_offsets_and_deletes_it(start, until, admin, topic, settings):
    member = start(**settings)
    until(lambda: len(member.values) == 60, member.poll)
    member.consumer.commit(asynchronous=False)
    listed = {group.group_id: group for group in admin.list_consumer_groups().result().valid}
    assert listed[topic].state == ConsumerGroupState.STABLE
    assert listed[topic].type == (ConsumerGroupType.CONSUMER if settings is MODERN else ConsumerGroupType.CLASSIC)
    described = admin.describe_consumer_groups([topic])[topic].result()
    assert described.state == ConsumerGroupState.STABLE
    assert {partition.partition for partition in described.members[0].assignment.topic_partitions} == set(range(6))
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([topic])[topic].result()
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP

    member.close()
    moved = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0, 4)])
    admin.alter_consumer_group_offsets([moved])[topic].result()
    asked = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, number) for number in (0, 1)])
    found = admin.list_consumer_group_offsets([asked])[topic].result()
    assert [partition.offset for partition in found.topic_partitions] == [4, 10]
    admin.delete_consumer_groups([topic])[topic].result()
    assert topic not in {group.group_id for group in admin.list_consumer_groups().result().valid}


def test_committed_offsets_and_the_generation_survive_a_restart(tmp_path, until):
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        cluster.create_topic("t", partitions=2)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in range(10):
            producer.produce("t", str(number), partition=number % 2)
        assert producer.flush(20) == 0
        for group, settings in (("classic", CLASSIC), ("modern", MODERN)):
            member = Member(cluster.bootstrap_servers, group, "t", **settings)
            until(lambda member=member: len(member.values) == 10, member.poll)
            member.consumer.commit(asynchronous=False)
            member.close()
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        for group, settings in (("classic", CLASSIC), ("modern", MODERN)):
            member = Member(cluster.bootstrap_servers, group, "t", **settings)
            until(lambda member=member: member.owned() == {0, 1}, member.poll)
            committed = member.consumer.committed([TopicPartition("t", 0), TopicPartition("t", 1)])
            assert [partition.offset for partition in committed] == [5, 5]
            member.close()


def test_a_member_goes_on_when_the_broker_restarts_under_it(tmp_path, until):
    cluster = EmbeddedCluster(data_dir=tmp_path)
    with cluster:
        cluster.create_topic("t")
        member = Member(cluster.bootstrap_servers, "g", "t", **CLASSIC)
        until(lambda: member.owned() == {0}, member.poll)
    with cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        producer.produce("t", "7")
        assert producer.flush(20) == 0
        until(lambda: member.values == [7], member.poll)
        member.consumer.commit(asynchronous=False)
        member.close()


def test_the_offsets_topic_is_compacted_internal_and_consumable(cluster, start, until, admin):
    member = start(**CLASSIC)
    until(lambda: len(member.values) == 60, member.poll)
    member.consumer.commit(asynchronous=False)
    topics = admin.list_topics(timeout=10).topics
    assert "__consumer_offsets" in topics
    reader = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    try:
        partitions = topics["__consumer_offsets"].partitions
        reader.assign([TopicPartition("__consumer_offsets", number, 0) for number in partitions])
        keys: set[bytes] = set()
        until(
            lambda: {key[1] for key in keys} >= {1, 2},
            lambda: keys.update(message.key() for message in reader.consume(100, 0.1) if not message.error()),
        )
    finally:
        reader.close()


def test_the_first_record_arrives_without_the_broker_adding_to_the_clients_own_waits(cluster, topic):
    """librdkafka waits 50 ms before its second connection and, in a group without offsets, 100 ms before it asks where
    to begin; the broker's share is a few milliseconds. The limit is generous for a loaded machine."""
    best = 9.0
    for number in range(5):
        began = time.perf_counter()
        member = Member(cluster.bootstrap_servers, f"{topic}-{number}", topic, **CLASSIC)
        assert member.consumer.poll(20).value() is not None
        best = min(best, time.perf_counter() - began)
        member.close()
    assert best < 0.5
