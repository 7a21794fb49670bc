"""Administrators' clients on three brokers: elections, growth and settings, whichever broker they talk to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import ElectionType
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from broker_embedded.cluster import EmbeddedCluster
from ottla.testing import wait_until

TIMEOUT_S = 60


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3) as running:
        yield running


def admin_of(cluster: EmbeddedCluster, broker: int) -> AdminClient:
    """A client for as long as the brokers that it knows live: librdkafka's does not look for the controller again."""
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers.split(",")[broker - 1]})


def test_leadership_goes_back_to_a_restarted_broker_when_an_administrator_asks(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", partitions=6, replication_factor=3)
    cluster.wait_for_leader("t")
    preferred = [cluster.leader("t", number) for number in range(6)]
    assert sorted(set(preferred)) == [1, 2, 3]
    cluster.kill(3)
    moved = [number for number in range(6) if preferred[number] == 3]
    wait_until(lambda: all(cluster.leader("t", each) in (1, 2) for each in moved), TIMEOUT_S, what="other leaders")
    cluster.start_broker(3)
    for number in range(6):
        cluster.wait_for_isr("t", number, isr={1, 2, 3}, timeout_s=TIMEOUT_S)
    admin = admin_of(cluster, 1)
    outcome = admin.elect_leaders(ElectionType.PREFERRED, None).result(TIMEOUT_S)
    assert [error for error in outcome.values() if error is not None] == []
    for number in range(6):
        cluster.wait_for_leader("t", number, leader=preferred[number], timeout_s=TIMEOUT_S)
    assert admin.describe_cluster().result(TIMEOUT_S).controller.id in cluster.broker_ids


def test_every_broker_takes_changes_although_one_of_them_is_the_controller(cluster: EmbeddedCluster) -> None:
    for broker in cluster.broker_ids:
        admin = admin_of(cluster, broker)
        name = f"t{broker}"
        admin.create_topics([NewTopic(name, 1, 3)])[name].result(TIMEOUT_S)
        cluster.wait_for_isr(name, isr={1, 2, 3}, timeout_s=TIMEOUT_S)
        admin.create_partitions([NewPartitions(name, 3)])[name].result(TIMEOUT_S)
        entry = ConfigEntry("retention.ms", "1234", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

        def is_changed(admin: AdminClient = admin, name: str = name) -> bool:
            asked = ConfigResource(ResourceType.TOPIC, name)
            settings = admin.describe_configs([asked])[asked].result(TIMEOUT_S)
            partitions = admin.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions
            return settings["retention.ms"].value == "1234" and len(partitions) == 3

        wait_until(is_changed, TIMEOUT_S, what="the change to be seen")
        admin.delete_topics([name])[name].result(TIMEOUT_S)


def test_changes_go_on_when_the_controllers_broker_is_killed(cluster: EmbeddedCluster) -> None:
    controller = cluster.controller_id
    other = next(broker for broker in cluster.broker_ids if broker != controller)
    cluster.kill(controller)
    admin = admin_of(cluster, other)
    admin.create_topics([NewTopic("after", 1, 2)], operation_timeout=30)["after"].result(TIMEOUT_S)
    cluster.wait_for_leader("after", timeout_s=TIMEOUT_S)
