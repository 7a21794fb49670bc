"""What foreign suites have written into their code can be chosen: the first broker's number, and each broker's port."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.common.errors import StartupError
from ottla_wire.protocol import ApiKey


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.mark.parametrize("brokers", [1, 3])
def test_brokers_may_be_numbered_from_zero(tmp_path: Path, brokers: int) -> None:
    records = 0
    for _ in range(2):  # and are found again by that number
        with EmbeddedCluster(brokers, data_dir=tmp_path, first_broker_id=0) as cluster:
            assert cluster.broker_ids == list(range(brokers))
            if records == 0:
                cluster.create_topic("t", partitions=brokers, replication_factor=brokers)
            assert {cluster.wait_for_leader("t", each) for each in range(brokers)} <= set(range(brokers))
            producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
            for each in range(brokers):
                producer.produce("t", b"v", partition=each)
            assert producer.flush(30) == 0
            records += brokers
            if brokers > 1:
                cluster.kill(0)
                assert all(cluster.wait_for_leader("t", each) != 0 for each in range(brokers))
                cluster.start_broker(0)
            assert count_of(cluster, records) == records


def count_of(cluster: EmbeddedCluster, wanted: int) -> int:
    """What a group reads, so that a coordinator is found too."""
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": f"g-{wanted}",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings | {"enable.auto.commit": False})
    consumer.subscribe(["t"])
    try:
        return len(consumer.consume(wanted, 30))
    finally:
        consumer.close()


def test_each_broker_may_have_a_port_of_its_own() -> None:
    ports = free_ports(3)
    with EmbeddedCluster(3, ports=ports) as cluster:
        client = WireClient(cluster.bootstrap_servers)
        told = client.call(ApiKey.METADATA, 9, {"topics": []}).brokers
        client.close()
    assert {each.node_id: each.port for each in told} == dict(enumerate(ports, start=1))


@pytest.mark.parametrize("wrong", [{"first_broker_id": -1}, {"ports": [1, 2]}], ids=str)
def test_numbers_and_ports_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(StartupError, match=f"{next(iter(wrong))}: found"):
        EmbeddedCluster(3, **wrong)
