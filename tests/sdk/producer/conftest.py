"""What the producers' tests share in both shells."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from broker_embedded.cluster import EmbeddedCluster
    from ottla.testing.kafka import Kafka


@pytest.fixture
def no_auto_create(make_cluster: Callable[..., EmbeddedCluster]) -> EmbeddedCluster:
    """A broker that does not create topics by itself."""
    return make_cluster(brokers=1, config={"auto.create.topics.enable": "false"})


@pytest.fixture
def closed_port() -> str:
    """An address where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def silent_port() -> Iterator[str]:
    """An address where something listens that never says a word: a wrong port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def alter_topic(kafka: Kafka) -> Callable[[str, str, str], None]:
    """A function that sets one configuration of a topic: `alter_topic(topic, "max.message.bytes", "400000")`."""
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    def alter(topic: str, name: str, value: str) -> None:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(10)

    return alter


@pytest.fixture
def mock_cluster() -> Iterator[str]:
    """librdkafka's own mock cluster, which has a transaction coordinator; it does not fence."""
    from confluent_kafka import Producer as ConfluentProducer

    client = ConfluentProducer({"bootstrap.servers": "ignored", "test.mock.num.brokers": 1, "log_level": 0})
    for topic in ("t", "out"):
        client.list_topics(topic, timeout=10)  # it creates the topic that is asked about
    brokers = client.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    del client
