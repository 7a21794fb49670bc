"""A decided transaction outlives its coordinator: the broker is killed between the decision and the markers.

A partition that wants more in-sync replicas than it has takes no marker. So, while its second broker is down, it holds
a transaction in PrepareCommit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from transaction_wire import WireProducer, committed_offset, find_coordinator, markers_in, read_committed
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from ottla_wire.protocol import ApiKey, ErrorCode

GROUP = 0
OPEN, HELD = "open-to-all", "held"
NOT_YET = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""What a broker that has just started says."""


class Brokers:
    """Two brokers over a directory. The second has the other replica of HELD, and nothing that anybody has to ask."""

    def __init__(self, directory: Path) -> None:
        settings = {
            "transaction.state.log.num.partitions": 1,
            "offsets.topic.num.partitions": 1,
            "default.replication.factor": 1,
        }
        self.cluster = EmbeddedCluster(brokers=2, data_dir=directory, config=settings)
        self.client: WireClient

    def start(self) -> WireClient:
        self.cluster.start()
        return self._connect()

    def _connect(self) -> WireClient:
        self.client = WireClient(self.cluster.bootstrap_servers.split(",")[0], timeout_s=30)
        return self.client

    def restart(self) -> WireClient:
        """Kill the broker that coordinates. Ready when all that the tests ask about is led and replayed."""
        self.client.close()
        self.cluster.kill(1)
        self.cluster.start_broker(1)
        client = self._connect()
        deadline = time.monotonic() + 30
        while state_of(client) == "Loading" or committed_offset(client, "g", OPEN).error_code in NOT_YET:
            assert time.monotonic() < deadline, "the broker did not come back"
            time.sleep(0.01)
        return client

    def stop(self) -> None:
        self.client.close()
        self.cluster.stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path)
    client = brokers.start()
    try:
        assignments = {
            OPEN: [{"partition_index": 0, "broker_ids": [1]}],
            HELD: [{"partition_index": 0, "broker_ids": [1, 2]}],
            "__transaction_state": [{"partition_index": 0, "broker_ids": [1]}],
            "__consumer_offsets": [{"partition_index": 0, "broker_ids": [1]}],
        }
        topics = [
            {
                "name": name,
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": assignment,
                "configs": [{"name": "min.insync.replicas", "value": "2"}] if name == HELD else [],
            }
            for name, assignment in assignments.items()
        ]
        client.call(ApiKey.CREATE_TOPICS, 4, {"topics": topics, "timeout_ms": 20_000})
        find_coordinator(client, "g", GROUP)
        find_coordinator(client, "x")
        brokers.cluster.wait_for_isr(HELD)
        yield brokers
    finally:
        brokers.stop()


def hold(brokers: Brokers, *, is_held: bool = True) -> None:
    """Let the topic HELD take no writes of acks=all, or take them again."""
    if is_held:
        brokers.cluster.kill(2)
        brokers.cluster.wait_for_isr(HELD, isr=[1])
    else:
        brokers.cluster.start_broker(2)
        brokers.cluster.wait_for_isr(HELD)


def state_of(client: WireClient, transactional_id: str = "x") -> str:
    answer = client.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [transactional_id]})
    (found,) = answer.transaction_states
    if found.error_code in NOT_YET:
        return "Loading"
    assert found.error_code == 0, ErrorCode(found.error_code)
    return str(found.transaction_state)


def decided(brokers: Brokers, *, commit: bool, version: int) -> WireProducer:
    """A transaction that is decided and written nowhere but at the partition OPEN and in the group's offsets."""
    producer = WireProducer(brokers.client, "x", version=version).init()
    producer.send(OPEN, b"a")
    producer.send(HELD, b"b")
    if version == 1:
        assert producer.add_offsets("g") is ErrorCode.NONE
    assert producer.commit_offset("g", OPEN, 7) is ErrorCode.NONE
    hold(brokers)
    assert producer.end(commit=commit) is ErrorCode.NONE, "decided is decided"
    return producer


@pytest.mark.representative("True-2")
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_decided_transaction_is_finished_after_a_crash(
    broker: Brokers, until: Callable[..., None], commit: bool, version: int
):
    producer = decided(broker, commit=commit, version=version)
    prepared = "PrepareCommit" if commit else "PrepareAbort"
    assert state_of(broker.client) == prepared
    assert producer.add(OPEN, 0) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert read_committed(broker.client, HELD) == [], "whoever reads waits for the marker"

    client = broker.restart()
    assert state_of(client) == prepared
    assert read_committed(client, HELD) == []
    hold(broker, is_held=False)
    until(lambda: state_of(client) == prepared.replace("Prepare", "Complete"))

    assert read_committed(client, OPEN) == ([b"a"] if commit else [])
    assert read_committed(client, HELD) == ([b"b"] if commit else [])
    assert committed_offset(client, "g", OPEN, require_stable=True).committed_offset == (7 if commit else -1)
    kind = "COMMIT" if commit else "ABORT"
    for topic in (OPEN, HELD):
        assert [each[2] for each in markers_in(client, topic)] == [kind], "each partition has one marker"
    producer.client = client
    producer.sequences.clear() if version == 2 else None
    producer.send(OPEN, b"next")
    producer.commit()
    assert read_committed(client, OPEN) == [*([b"a"] if commit else []), b"next"]


def test_an_open_transaction_goes_on_after_a_crash(broker: Brokers):
    producer = WireProducer(broker.client, "x").init()
    producer.send(OPEN, b"before")
    client = producer.client = broker.restart()
    assert state_of(client) == "Ongoing"
    assert read_committed(client, OPEN) == []
    producer.send(OPEN, b"after")
    producer.commit()
    assert read_committed(client, OPEN) == [b"before", b"after"]


def test_offsets_of_an_open_transaction_are_still_held_after_a_crash(broker: Brokers, until: Callable[..., None]):
    producer = WireProducer(broker.client, "x").init()
    producer.add_offsets("g")
    assert producer.commit_offset("g", OPEN, 7) is ErrorCode.NONE
    client = producer.client = broker.restart()
    assert state_of(client) == "Ongoing"
    stable = committed_offset(client, "g", OPEN, require_stable=True)
    assert stable.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    producer.commit()
    assert committed_offset(client, "g", OPEN, require_stable=True).committed_offset == 7


def test_a_producer_that_died_with_its_broker_is_fenced(broker: Brokers):
    zombie = WireProducer(broker.client, "x").init()
    zombie.send(OPEN, b"lost")
    client = zombie.client = broker.restart()
    assert state_of(client) == "Ongoing"
    living = WireProducer(client, "x").init()
    assert zombie.produce(OPEN, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
    living.send(OPEN, b"kept")
    living.commit()
    assert read_committed(client, OPEN) == [b"kept"]


def test_a_partition_that_is_deleted_does_not_hold_its_transaction(broker: Brokers, until: Callable[..., None]):
    client = broker.client
    decided(broker, commit=True, version=1)
    assert state_of(client) == "PrepareCommit"
    client.call(ApiKey.DELETE_TOPICS, 4, {"topic_names": [HELD], "timeout_ms": 20_000})
    until(lambda: state_of(client) == "CompleteCommit")
    assert read_committed(client, OPEN) == [b"a"]
