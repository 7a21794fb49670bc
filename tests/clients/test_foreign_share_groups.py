"""Share consumers of other clients while a member and a leader are killed: nothing is lost or settled twice.

librdkafka's preview is in tests/broker/share/test_share_confluent.py: it comes with confluent-kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from apache_kafka import Unavailable
from foreign_client import CLIENTS, ForeignClient, Program
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from ottla import Producer, Queue
from ottla.admin import Admin
from ottla.testing import wait_until
from ottla_wire.protocol import ApiKey

RECORDS = 400

pytestmark = [pytest.mark.timeout(600), pytest.mark.clients]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    settings = {
        "offsets.topic.num.partitions": 1,
        "share.coordinator.state.topic.num.partitions": 2,
        "group.share.min.heartbeat.interval.ms": 500,
        "group.share.heartbeat.interval.ms": 500,
    }
    with EmbeddedCluster(3, config=settings) as running:
        yield running


@contextmanager
def member(client: ForeignClient, *arguments: str) -> Iterator[Program]:
    try:
        program = client.run("share", *arguments)
    except Unavailable as reason:
        pytest.skip(str(reason))
    with program:
        yield program


def set_group(servers: str, group: str, settings: dict[str, str]) -> None:
    client = WireClient(servers)
    configs = [{"name": name, "config_operation": 0, "value": value} for name, value in settings.items()]
    resource = {"resource_type": 32, "resource_name": group, "configs": configs}
    body = {"resources": [resource], "validate_only": False}
    assert client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body).responses[0].error_code == 0
    client.close()


def settled(program: Program, *outcomes: str, said: str = "settled") -> Counter[tuple[int, int]]:
    return Counter(
        (int(partition), int(offset))
        for partition, offset, _, outcome in program.said(said)
        if outcome.lower() in outcomes
    )


def lag(admin: Admin, group: str) -> int:
    """Return the records that are not settled; -1 while that is not known."""
    total = admin.group_lag(group)[0].total
    return -1 if total is None else total


@pytest.mark.parametrize(
    "client", [each for each in CLIENTS.values() if each.has_share_groups], ids=lambda client: client.name
)
def test_jobs_are_settled_once_while_a_member_and_a_leader_are_killed(
    cluster: EmbeddedCluster, client: ForeignClient
) -> None:
    servers = cluster.bootstrap_servers
    cluster.create_topic("jobs", partitions=2, replication_factor=3)
    set_group(servers, "workers", {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "10"})
    with Producer(servers) as producer:
        for number in range(RECORDS):
            producer.send("jobs", b"%d" % number, partition=number % 2)
    everything = {(number % 2, number // 2) for number in range(RECORDS)}
    with member(client, servers, "jobs", "workers", "hold") as holder:
        holder.wait_for("held")
        with member(client, servers, "jobs", "workers", "work") as worker:
            worker.wait_for("settled")
            holder.kill()
            cluster.kill(cluster.leader("jobs", 0))
            with Admin(servers) as admin:
                wait_until(lambda: lag(admin, "workers") == 0, 120, what="the end of all records")
            worker.tell()
            worker.wait_for("closed")
            counts = settled(worker, "accept", "reject")
            assert max(counts.values()) == 1, "what was settled came again"
            # A leader that dies may have kept an outcome that it did not answer.
            assert set(counts) | set(settled(worker, "accept", "reject", said="unknown")) == everything
            rejected = settled(worker, "reject")
            assert {offset % 10 for _, offset in rejected} == {5}
            said = [*worker.said("unknown"), *worker.said("settled")]
            again = {(int(p), int(o)): int(count) for p, o, count, _ in said}
            assert all(again[place] >= 2 for place in everything if place[1] % 10 == 3)
            held: Any = {(int(partition), int(offset)) for partition, offset in holder.said("held")}
            assert all(again[place] >= 2 for place in held if place[1] % 10 != 5 and place in again)
    with Queue("jobs", group="workers", bootstrap_servers=servers) as queue:
        assert queue.take(2.0) is None, "everything is settled"
