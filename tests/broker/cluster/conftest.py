"""Clusters of three brokers that really replicate, and small clients for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from ottla_wire.records.record import RecordData, encode_batch


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., EmbeddedCluster]]:
    """A function that starts a cluster of three, or as told."""
    started: list[EmbeddedCluster] = []

    def make(brokers: int = 3, **options: Any) -> EmbeddedCluster:
        cluster = EmbeddedCluster(brokers, **options).start()
        started.append(cluster)
        return cluster

    yield make
    for cluster in started:
        cluster.stop()


@pytest.fixture
def cluster(make_cluster: Callable[..., EmbeddedCluster]) -> EmbeddedCluster:
    return make_cluster()


class Client:
    """Produces one record at a time and reads everything, by confluent-kafka."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self._producers: dict[str, Any] = {}

    def send(self, topic: str, *values: str, partition: int = 0, timeout_s: float = 60, **settings: Any) -> None:
        """Each value acknowledged; AssertionError with the client's error if one is not."""
        errors = [
            self.try_to_send(topic, value, partition=partition, timeout_s=timeout_s, **settings) for value in values
        ]
        assert errors == [None] * len(values)

    def try_to_send(
        self, topic: str, value: str, *, partition: int = 0, timeout_s: float = 60, **settings: Any
    ) -> KafkaError | None:
        """None when acknowledged, else why not."""
        key = repr(sorted(settings.items()))
        if key not in self._producers:
            config = {"linger.ms": 0, "enable.idempotence": True, "log_level": 0, **settings}
            self._producers[key] = Producer({"bootstrap.servers": self.cluster.bootstrap_servers, **config})
        producer, result = self._producers[key], []
        producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: result.append(error))
        left = producer.flush(timeout_s)
        assert not left, f"{value} was neither acknowledged nor refused within {timeout_s} s"
        return result[0]

    def read(self, topic: str, count: int, *, partition: int = 0, timeout_s: float = 60, **settings: Any) -> list[str]:
        """The first `count` records from the start."""
        config = {"group.id": "reader", "enable.auto.commit": False, "log_level": 0, **settings}
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap_servers, **config})
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[str] = []
        deadline = time.monotonic() + timeout_s
        try:
            while len(found) < count:
                assert time.monotonic() < deadline, f"after {timeout_s} s: found {found}, wanted {count} records"
                message = consumer.poll(0.5)
                if message is not None and not message.error():
                    found.append(message.value().decode())
        finally:
            consumer.close()
        return found


@pytest.fixture
def client(cluster: EmbeddedCluster) -> Client:
    return Client(cluster)


@pytest.fixture
def make_client() -> type[Client]:
    return Client


@pytest.fixture
def wire() -> Iterator[Callable[[EmbeddedCluster, int], WireClient]]:
    """A function that connects to one broker of a cluster."""
    opened: list[WireClient] = []

    def connect(cluster: EmbeddedCluster, broker: int) -> WireClient:
        address = cluster.bootstrap_servers.split(",")[cluster.broker_ids.index(broker)]
        opened.append(WireClient(address, timeout_s=30))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


@pytest.fixture
def until() -> Callable[..., None]:
    """Wait for a condition, asking again and again."""

    def wait(is_so: Callable[[], bool], *, timeout_s: float = 40) -> None:
        deadline = time.monotonic() + timeout_s
        while not is_so():
            assert time.monotonic() < deadline, f"the condition was not met within {timeout_s} s"
            time.sleep(0.01)

    return wait


@pytest.fixture
def make_records() -> Callable[..., bytes]:
    """A function that encodes one batch of values."""

    def make(*values: bytes) -> bytes:
        now_ms = int(time.time() * 1000)
        records = [
            RecordData(offset=index, timestamp_ms=now_ms, key=None, value=value, headers=())
            for index, value in enumerate(values)
        ]
        return bytes(encode_batch(records))

    return make
