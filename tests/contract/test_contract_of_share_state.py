"""The records of `__share_group_state`: Kafka's own decoder reads the broker's, and the broker's reads Kafka's."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import ApacheKafka, Unavailable, libraries, wanted
from confluent_kafka import Consumer, TopicPartition
from share_member import ACCEPT, REJECT, RELEASE, ShareMember

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.coordinator.runtime.shard import CoordinatorRecord
from broker_embedded.coordinator.share import records
from broker_embedded.coordinator.share.state import ShareState, StateUpdate
from broker_embedded.share.states import RecordState
from ottla import Producer, TopicSpec
from ottla.admin import Admin
from ottla_wire.protocol import ApiKey

pytestmark = [pytest.mark.real_kafka, pytest.mark.timeout(400)]

STATE_TOPIC, TOPIC, GROUP = "__share_group_state", "jobs", "workers"
ONE_PARTITION = {
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
}
WRITTEN = [
    (0, 2, (4, 5, RecordState.ACKNOWLEDGED, 1)),
    (0, 2, (1, 2, RecordState.AVAILABLE, 1)),
    (0, 3, (3, 3, RecordState.ARCHIVED, 1)),
    (0, 4, (0, 0, RecordState.ACKNOWLEDGED, 1)),
    (1, 3, (6, 9, RecordState.AVAILABLE, 1)),
]
"""Start offset, settled records behind it, and what changed: first and last offset, state and delivery count."""


@pytest.fixture(autouse=True)
def _needs_kafka() -> None:
    version = wanted()
    if version is None:
        pytest.skip("Apache Kafka is fetched and run with KAFKA=real")
    if version < "4.4":
        pytest.skip(f"Apache Kafka {version} has no share groups that are ready for use")
    try:
        libraries(version)
    except Unavailable as reason:
        pytest.skip(str(reason))


def settle(bootstrap: str) -> None:
    """Lease ten records, and settle six of them one way or another."""
    with Admin(bootstrap) as admin:
        admin.create_topics({TOPIC: TopicSpec(partitions=1, replication_factor=1)})
    with Producer(bootstrap) as producer:
        for _ in range(10):
            producer.send(TOPIC, b"x")
    member = ShareMember(bootstrap, GROUP)
    change = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    resource = {"resource_type": 32, "resource_name": GROUP, "configs": [change]}
    member.client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
    member.join(TOPIC)
    held = 0
    while held < 10:
        held += sum(last - first + 1 for first, last, _ in member.acquire(TOPIC))
    for first, last, kind in ((4, 5, ACCEPT), (1, 2, RELEASE), (3, 3, REJECT), (0, 0, ACCEPT)):
        assert member.acknowledge(TOPIC, first, last, kind) == 0
    member.close_session(TOPIC)  # the rest is available again
    member.close()


def updates_of(values: list[Any]) -> list[Any]:
    """Return the start offset, the count and the batches of each update that the broker's decoder found."""
    snapshot, *updates = values
    assert isinstance(snapshot, ShareState)
    assert (snapshot.snapshot_epoch, snapshot.start_offset, snapshot.batches) == (0, -1, ())
    assert all(isinstance(update, StateUpdate) for update in updates)
    return [(update.start_offset, update.complete_count, *map(tuple, update.batches)) for update in updates]


def decoded(bootstrap: str) -> list[Any]:
    """Return the values of the state topic as the broker's decoder reads them."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(STATE_TOPIC, 0, 0)])
    found: list[Any] = []
    try:
        while len(found) < len(WRITTEN) + 1:
            message = consumer.poll(30)
            assert message is not None, found
            assert message.error() is None
            value = records.decode(CoordinatorRecord(message.key(), message.value()))
            assert value is not None
            key, state = value
            assert (key.group_id, key.partition) == (GROUP, 0)
            found.append(state)
    finally:
        consumer.close()
    return found


def dumped(kafka: ApacheKafka, data_dir: Path) -> list[Any]:
    """Return the same of the values that Kafka's decoder prints."""
    logs = sorted(data_dir.glob(f"broker-1/{STATE_TOPIC}-0/*.log"))
    printed = kafka.dump("--share-group-state-decoder", "--files", ",".join(map(str, logs)))
    assert "Could not" not in printed
    snapshot, *updates = (
        json.loads(payload)["data"] for payload in re.findall(r"payload: (\{.*\})$", printed, re.MULTILINE)
    )
    assert (snapshot["snapshotEpoch"], snapshot["startOffset"], snapshot["stateBatches"]) == (0, -1, [])
    return [
        (
            update["startOffset"],
            update["deliveryCompleteCount"],
            *(tuple(each.values()) for each in update["stateBatches"]),
        )
        for update in updates
    ]


def test_states_that_kafka_and_the_embedded_broker_wrote_are_read_by_both(tmp_path: Path) -> None:
    with EmbeddedCluster(data_dir=tmp_path / "embedded", config=ONE_PARTITION) as cluster:
        settle(cluster.bootstrap_servers)
        assert updates_of(decoded(cluster.bootstrap_servers)) == WRITTEN
    with ApacheKafka(data_dir=tmp_path / "kafka", config=ONE_PARTITION) as kafka:
        settle(kafka.bootstrap_servers)
        assert updates_of(decoded(kafka.bootstrap_servers)) == WRITTEN
        assert dumped(kafka, tmp_path / "kafka") == WRITTEN
        assert dumped(kafka, tmp_path / "embedded") == WRITTEN
