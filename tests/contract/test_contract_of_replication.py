"""Three nodes: what producers see of in-sync replicas and of leaders that die. The same on Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from apache_kafka import ApacheKafka, Unavailable, wanted
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

pytestmark = pytest.mark.timeout(400)


class ThreeNodes:
    """A cluster of which single nodes can be killed and started again, and connections to each of them."""

    def __init__(self, cluster: EmbeddedCluster | ApacheKafka, cleanup: ExitStack) -> None:
        self.bootstrap_servers = cluster.bootstrap_servers
        self.kill, self._cleanup = cluster.kill, cleanup
        self.start = cluster.start_broker if isinstance(cluster, EmbeddedCluster) else cluster.start

    def connect(self, node: int) -> WireClient:
        client = WireClient(self.bootstrap_servers.split(",")[node - 1], timeout_s=60)
        self._cleanup.callback(client.close)
        return client

    def create(self, min_insync_replicas: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        config = {"min.insync.replicas": str(min_insync_replicas)}
        (created,) = admin.create_topics([NewTopic("t", 1, 3, config=config)]).values()
        created.result(60)
        self.until(1, lambda partition: len(partition.isr_nodes) == 3)

    def until(self, node: int, is_so: Callable[[Message], bool]) -> Message:
        """Until a node's metadata of t-0 is so."""
        client = self.connect(node)
        found: list[Message] = []

        def look() -> bool:
            answer = client.call(ApiKey.METADATA, 9, {"topics": [{"name": "t"}], "allow_auto_topic_creation": False})
            found[:] = answer.topics[0].partitions
            return bool(found) and found[0].leader_id > 0 and is_so(found[0])

        deadline = time.monotonic() + 90
        while not look():
            assert time.monotonic() < deadline, f"t-0 is otherwise: {found}"
            time.sleep(0.05)
        return found[0]


@pytest.fixture
def nodes() -> Iterator[ThreeNodes]:
    with ExitStack() as cleanup:
        if wanted() is None:
            yield ThreeNodes(cleanup.enter_context(EmbeddedCluster(3)), cleanup)
            return
        try:
            real = ApacheKafka(3)
        except Unavailable as reason:
            pytest.skip(str(reason))
        yield ThreeNodes(cleanup.enter_context(real), cleanup)


def test_with_too_few_in_sync_replicas_only_acks_all_is_refused(
    nodes: ThreeNodes, make_records: Callable[..., bytes]
) -> None:
    nodes.create(min_insync_replicas=3)
    leader = nodes.until(1, lambda _: True).leader_id
    client = nodes.connect(leader)
    assert client.produce("t", make_records(b"all are in sync")).error_code == ErrorCode.NONE
    victim = leader % 3 + 1
    nodes.kill(victim)
    nodes.until(leader, lambda partition: victim not in partition.isr_nodes)
    assert client.produce("t", make_records(b"too few")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert client.produce("t", make_records(b"the leader's alone"), acks=1).error_code == ErrorCode.NONE
    nodes.start(victim)
    nodes.until(leader, lambda partition: len(partition.isr_nodes) == 3)
    assert client.produce("t", make_records(b"all again")).error_code == ErrorCode.NONE


def test_another_replica_leads_and_has_everything_when_the_leader_dies(nodes: ThreeNodes) -> None:
    nodes.create(min_insync_replicas=2)
    before = nodes.until(1, lambda _: True)
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": nodes.bootstrap_servers, "enable.idempotence": True})
    for n in range(200):
        producer.produce("t", b"%d" % n, on_delivery=lambda error, _: errors.append(error))
        if n == 100:
            assert producer.flush(60) == 0
            nodes.kill(before.leader_id)
    assert producer.flush(120) == 0
    assert errors == [None] * 200
    survivor = before.leader_id % 3 + 1
    after = nodes.until(survivor, lambda partition: partition.leader_id != before.leader_id)
    assert before.leader_id not in after.isr_nodes
    assert after.leader_epoch > before.leader_epoch
    reader = nodes.connect(after.leader_id)
    body = {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}], "replica_id": -1}
    answer = reader.call(ApiKey.LIST_OFFSETS, 7, {**body, "isolation_level": 0})
    assert answer.topics[0].partitions[0].offset == 200
    refused = reader.fetch("t", 0, version=12, current_leader_epoch=before.leader_epoch)
    assert refused.error_code == ErrorCode.FENCED_LEADER_EPOCH
    nodes.start(before.leader_id)
    nodes.until(survivor, lambda partition: len(partition.isr_nodes) == 3)
