"""A broker serves partitions that Apache Kafka 4.0 wrote (`kafka_4_0_folder`, see test_kafka_folder.py) to a client.

The topics are created here, then Kafka's files take the place of their partitions', but for the topic's id.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from broker_embedded.cluster import EmbeddedCluster

KAFKAS = Path(__file__).parent / "kafka_4_0_folder"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(data_dir=tmp_path) as making:
        making.create_topic("orders", config={"retention.ms": -1})
        making.create_topic("state", config={"retention.ms": -1, "cleanup.policy": "compact"})
    for partition in ("orders-0", "state-0"):
        here = tmp_path / "broker-1" / partition
        identity = (here / "partition.metadata").read_bytes()
        shutil.rmtree(here)
        shutil.copytree(KAFKAS / partition, here)
        (here / "partition.metadata").write_bytes(identity)
    for checkpoint in KAFKAS.glob("*-checkpoint"):
        shutil.copy(checkpoint, tmp_path / "broker-1")
    with EmbeddedCluster(data_dir=tmp_path) as running:
        yield running


def values(cluster: EmbeddedCluster, topic: str, isolation: str) -> list[bytes | None]:
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "reader",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        found.append(message.value())
    consumer.close()
    return found


def test_a_client_reads_what_kafka_wrote_and_writes_behind_it(cluster: EmbeddedCluster) -> None:
    orders = [b"order %d" % (i * 10 + j) for i in range(250) for j in range(i % 4 + 1)]
    committed = values(cluster, "orders", "read_committed")
    uncommitted = values(cluster, "orders", "read_uncommitted")
    assert [each for each in uncommitted if each in set(orders)] == orders
    assert len(uncommitted) > len(committed) > len(orders), "of six transactions, three were aborted"
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})  # its id could be one of those of the folder
    producer.produce("orders", b"more", partition=0)
    assert producer.flush(60) == 0
    assert values(cluster, "orders", "read_committed") == [*committed, b"more"]
    assert len(values(cluster, "state", "read_committed")) == 10, "nine keys, one of them a tombstone, and the last"
