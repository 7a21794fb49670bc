"""kafka-python's transactional producer."""

from __future__ import annotations

import warnings

import pytest

from broker_embedded.cluster import EmbeddedCluster

with warnings.catch_warnings():  # it reads its schemas in a way that Python 3.11 deprecates and 3.13 has again
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")


def producer_of(cluster: EmbeddedCluster, transactional_id: str) -> KafkaProducer:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=transactional_id)
    producer.init_transactions()
    return producer


def committed_values(cluster: EmbeddedCluster, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
    )
    consumer.assign([TopicPartition(topic, 0)])
    values = [next(consumer).value for _ in range(count)]
    consumer.close()
    return values


def test_committed_records_are_read_and_aborted_ones_are_not(cluster: EmbeddedCluster, topic: str, name: str):
    producer = producer_of(cluster, name)
    for number in range(6):
        producer.begin_transaction()
        producer.send(topic, str(number).encode(), partition=0)
        producer.flush()
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    assert committed_values(cluster, topic, 3) == [b"0", b"2", b"4"]


def test_offsets_are_part_of_the_transaction(cluster: EmbeddedCluster, topic: str, name: str):
    producer = producer_of(cluster, name)
    where = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=name, enable_auto_commit=False)
    for offset, commit in ((5, True), (9, False)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction({where: OffsetAndMetadata(offset, "", -1)}, name)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    assert consumer.committed(where) == 5
    consumer.close()
    producer.close()


def test_a_zombie_is_fenced(cluster: EmbeddedCluster, topic: str, name: str):
    zombie = producer_of(cluster, name)
    zombie.begin_transaction()
    zombie.send(topic, b"zombie", partition=0)
    zombie.flush()
    living = producer_of(cluster, name)
    with pytest.raises(KafkaError):
        zombie.commit_transaction()
    living.begin_transaction()
    living.send(topic, b"living", partition=0)
    living.commit_transaction()
    living.close()
    zombie.close(timeout=1)
    assert committed_values(cluster, topic, 1) == [b"living"]
