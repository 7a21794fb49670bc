"""confluent-kafka's share consumer (librdkafka's preview), unmodified, against the embedded broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Producer
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from ottla_wire.protocol import ApiKey

pytestmark = pytest.mark.skipif(
    not hasattr(confluent_kafka, "ShareConsumer"), reason="this confluent-kafka has no ShareConsumer"
)


@pytest.fixture
def servers() -> Iterator[str]:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("jobs", partitions=2)
        client = WireClient(cluster.bootstrap_servers)
        config = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
        resource = {"resource_type": 32, "resource_name": "workers", "configs": [config]}
        client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
        client.close()
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in range(20):
            producer.produce("jobs", str(number).encode())
        producer.flush()
        yield cluster.bootstrap_servers


def share_consumer(servers: str) -> Any:
    settings = {"bootstrap.servers": servers, "group.id": "workers", "share.acknowledgement.mode": "explicit"}
    consumer = confluent_kafka.ShareConsumer(settings)
    consumer.subscribe(["jobs"])
    return consumer


def settle(consumer: Any, count: int, *, released: frozenset[int] = frozenset(), timeout_s: float = 30) -> list[int]:
    """Return the numbers of the next records, all of them accepted but for the `released`."""
    kinds = confluent_kafka.AcknowledgeType
    found: list[int] = []
    deadline = time.monotonic() + timeout_s
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
        for message in consumer.poll(0.5):
            number = int(message.value())
            consumer.acknowledge(message, kinds.RELEASE if number in released else kinds.ACCEPT)
            released -= {number}
            found.append(number)
    consumer.commit_sync()
    return sorted(found)


def test_accepted_records_are_gone_and_released_ones_come_again(servers: str) -> None:
    consumer = share_consumer(servers)
    try:
        assert settle(consumer, 23, released=frozenset({0, 1, 2})) == sorted([*range(20), 0, 1, 2])
    finally:
        consumer.close()


def test_what_a_closed_consumer_held_goes_to_another(servers: str) -> None:
    one = share_consumer(servers)
    while not one.poll(0.5):
        pass
    one.close()
    other = share_consumer(servers)
    try:
        assert settle(other, 20) == list(range(20))
    finally:
        other.close()
