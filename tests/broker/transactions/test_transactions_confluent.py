"""confluent-kafka's transactional producer and read_committed consumer."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from broker_embedded.cluster import EmbeddedCluster

WAIT_S = 30


@pytest.fixture
def make_producer(cluster: EmbeddedCluster, name: str) -> Callable[..., Producer]:
    """Makes a producer with the test's transactional id and lets it in."""

    def make(**settings: object) -> Producer:
        config = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name, **settings}
        producer = Producer(config)
        producer.init_transactions(WAIT_S)
        return producer

    return make


def consumer_of(cluster: EmbeddedCluster, group: str, topic: str, isolation: str = "read_committed") -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": isolation,
        }
    )
    consumer.subscribe([topic])
    return consumer


def take(consumer: Consumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    deadline = time.monotonic() + WAIT_S
    while len(values) < count:
        assert time.monotonic() < deadline, f"only {values} arrived"
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            values.append(message.value())
    return values


def test_committed_records_are_read_and_aborted_ones_are_not(
    cluster: EmbeddedCluster, make_producer: Callable[..., Producer], topic: str, name: str
):
    producer = make_producer()
    for number in range(6):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(topic, f"{number}", partition=partition)
        if number % 2:
            producer.flush()
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)
    committed = consumer_of(cluster, f"{name}-committed", topic)
    assert sorted(take(committed, 9)) == [b"0"] * 3 + [b"2"] * 3 + [b"4"] * 3
    committed.close()
    everything = consumer_of(cluster, f"{name}-all", topic, "read_uncommitted")
    assert len(take(everything, 18)) == 18
    everything.close()


def test_a_reader_waits_for_the_end_of_a_transaction(
    cluster: EmbeddedCluster, make_producer: Callable[..., Producer], topic: str, name: str
):
    producer = make_producer()
    consumer = consumer_of(cluster, name, topic)
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush()
    plain = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    plain.produce(topic, "elsewhere", partition=1)
    plain.produce(topic, "behind", partition=0)
    plain.flush()
    assert take(consumer, 1) == [b"elsewhere"]
    producer.commit_transaction(WAIT_S)
    assert take(consumer, 2) == [b"open", b"behind"]
    consumer.close()


def test_a_zombie_is_fenced_for_good(
    cluster: EmbeddedCluster, make_producer: Callable[..., Producer], topic: str, name: str
):
    zombie = make_producer()
    zombie.begin_transaction()
    zombie.produce(topic, "zombie")
    zombie.flush()
    living = make_producer()
    living.begin_transaction()
    living.produce(topic, "living")
    living.commit_transaction(WAIT_S)
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(WAIT_S)
    assert caught.value.args[0].fatal()
    consumer = consumer_of(cluster, name, topic)
    assert take(consumer, 1) == [b"living"]
    consumer.close()


def test_offsets_are_committed_with_what_was_made_of_the_records(
    cluster: EmbeddedCluster, make_producer: Callable[..., Producer], topic: str, name: str
):
    out = f"{name}-out"
    cluster.create_topic(out)
    plain = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(30):
        plain.produce(topic, str(number), partition=number % 3)
    plain.flush()
    producer = make_producer()
    source = consumer_of(cluster, name, topic)
    attempts = 0
    done = 0
    deadline = time.monotonic() + WAIT_S
    while done < 30:
        assert time.monotonic() < deadline
        message = source.poll(0.1)
        if message is None:
            continue
        attempts += 1
        producer.begin_transaction()
        producer.produce(out, message.value())
        here = TopicPartition(topic, message.partition(), message.offset())
        after = TopicPartition(topic, message.partition(), message.offset() + 1)
        producer.send_offsets_to_transaction([after], source.consumer_group_metadata(), WAIT_S)
        if attempts % 4 == 0:
            producer.abort_transaction(WAIT_S)
            source.seek(here)
        else:
            producer.commit_transaction(WAIT_S)
            done += 1
    committed = source.committed([TopicPartition(topic, number) for number in range(3)], WAIT_S)
    assert [each.offset for each in committed] == [10, 10, 10]
    source.close()
    reader = consumer_of(cluster, f"{name}-reader", out)
    assert sorted(take(reader, 30), key=int) == [str(number).encode() for number in range(30)]
    reader.close()


def test_a_transaction_that_takes_too_long_is_aborted(
    cluster: EmbeddedCluster, make_producer: Callable[..., Producer], topic: str, name: str
):
    slow = make_producer(**{"transaction.timeout.ms": 1_000})
    slow.begin_transaction()
    slow.produce(topic, "lost", partition=0)
    slow.flush()
    plain = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    plain.produce(topic, "behind", partition=0)
    plain.flush()
    consumer = consumer_of(cluster, name, topic)
    assert take(consumer, 1) == [b"behind"], "it waited for the timeout, not for the producer"
    with pytest.raises(KafkaException):
        slow.commit_transaction(WAIT_S)
    consumer.close()


def test_many_transactions_in_a_row_cost_no_waiting(
    cluster: EmbeddedCluster, make_producer: Callable[..., Producer], topic: str, name: str
):
    producer = make_producer()
    for number in range(200):
        producer.begin_transaction()
        producer.produce(topic, str(number), partition=0)
        producer.commit_transaction(WAIT_S)
    consumer = consumer_of(cluster, name, topic)
    assert take(consumer, 200) == [str(number).encode() for number in range(200)]
    consumer.close()
