"""Groups and transactions outlive the broker that coordinates them, in a cluster that nobody has configured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from broker_embedded.cluster import EmbeddedCluster

Make = Callable[..., EmbeddedCluster]


def client(kind: type[Any], cluster: EmbeddedCluster, **settings: Any) -> Any:
    return kind({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, **settings})


def commit(cluster: EmbeddedCluster, offset: int) -> None:
    consumer = client(Consumer, cluster, **{"group.id": "g", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
    consumer.close()


def committed(cluster: EmbeddedCluster) -> int:
    consumer = client(Consumer, cluster, **{"group.id": "g", "enable.auto.commit": False})
    (found,) = consumer.committed([TopicPartition("t", 0)], timeout=60)
    consumer.close()
    offset: int = found.offset
    return offset


def replicas_of(cluster: EmbeddedCluster, topic: str) -> set[int]:
    """How many its partitions have."""
    return {len(state.replicas) for (name, _), state in cluster.facts().partitions.items() if name == topic}


@pytest.mark.representative("1-1")
@pytest.mark.parametrize(("brokers", "min_in_sync"), [(1, 1), (2, 1), (3, 2)])
def test_internal_topics_have_a_replica_on_every_broker_up_to_three(
    make_cluster: Make, brokers: int, min_in_sync: int
) -> None:
    cluster = make_cluster(brokers)
    cluster.create_topic("t")
    commit(cluster, 1)
    client(Producer, cluster, **{"transactional.id": "x"}).init_transactions(60)
    assert replicas_of(cluster, "__consumer_offsets") == {brokers}
    assert replicas_of(cluster, "__transaction_state") == {brokers}
    resource = ConfigResource(ConfigResource.Type.TOPIC, "__transaction_state")
    admin = client(AdminClient, cluster)
    found = admin.describe_configs([resource])[resource].result(60)
    assert found["min.insync.replicas"].value == str(min_in_sync), "one broker may be missing"


def test_committed_offsets_outlive_the_broker_that_took_them(make_cluster: Make) -> None:
    cluster = make_cluster(3)
    cluster.create_topic("t", replication_factor=3)
    commit(cluster, 7)
    admin = client(AdminClient, cluster)
    coordinator = admin.describe_consumer_groups(["g"])["g"].result(60).coordinator.id
    cluster.kill(coordinator)
    assert committed(cluster) == 7
    commit(cluster, 8)
    assert committed(cluster) == 8
