"""The share coordinator: what is settled survives brokers, leaders and coordinators, and old leaders are fenced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from share_member import ACCEPT, REJECT, RELEASE, ShareMember
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.cluster.time import VirtualClock
from broker_embedded.common.errors import BrokerError
from broker_embedded.coordinator.share import records
from broker_embedded.coordinator.share.coordinator import check_coordinator_key, coordinator_key
from broker_embedded.coordinator.share.shard import ShareShard
from broker_embedded.coordinator.share.state import (
    ShareState,
    StateUpdate,
    check_write,
    initialized,
    snapshot_of,
    updated,
)
from broker_embedded.share.events import StateBatch
from broker_embedded.share.persister import ShareKey
from broker_embedded.share.states import RecordState
from ottla.testing.waiting import wait_until
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.records.record import RecordData, encode_batch

KEY = ShareKey("g", bytes.fromhex("cf18617962dc4857bbe570291d6f6f33"), 0)
ACKED, FREE, GONE = RecordState.ACKNOWLEDGED, RecordState.AVAILABLE, RecordState.ARCHIVED


# --- states and records


def test_a_snapshot_and_its_updates_are_read_back() -> None:
    state = ShareState(state_epoch=2, created_ms=1, written_ms=1)
    update = StateUpdate(
        leader_epoch=1,
        batches=(StateBatch(0, 0, ACKED, 1), StateBatch(1, 1, FREE, 1), StateBatch(3, 4, ACKED, 1)),
        complete_count=3,
    )
    assert records.decode(records.snapshot_record(KEY, state)) == (KEY, state)
    assert records.decode(records.update_record(KEY, update, snapshot_epoch=0)) == (KEY, update)
    assert records.decode(records.tombstone(KEY)) == (KEY, None)
    assert records.snapshot_record(KEY, state).key.hex() == "0000000167cf18617962dc4857bbe570291d6f6f3300000000"


def test_updates_are_laid_over_what_is_known() -> None:
    state = ShareState(start_offset=0, batches=(StateBatch(0, 9, FREE, 1),))
    state = updated(state, StateUpdate(leader_epoch=3, batches=(StateBatch(2, 3, ACKED, 2),), complete_count=2))
    assert state.batches == (StateBatch(0, 1, FREE, 1), StateBatch(2, 3, ACKED, 2), StateBatch(4, 9, FREE, 1))
    state = updated(state, StateUpdate(leader_epoch=3, start_offset=3, batches=(StateBatch(4, 9, GONE, 2),)))
    assert state.batches == (StateBatch(3, 3, ACKED, 2), StateBatch(4, 9, GONE, 2))
    assert (state.start_offset, state.leader_epoch, state.complete_count, state.updates) == (3, 3, 2, 2)
    assert snapshot_of(state, now_ms=5).snapshot_epoch == 1


def test_older_epochs_are_fenced() -> None:
    state = ShareState(state_epoch=4, leader_epoch=7)
    check_write(state, leader_epoch=7, state_epoch=4)
    for leader_epoch, state_epoch, code in (
        (6, 4, ErrorCode.FENCED_LEADER_EPOCH),
        (7, 3, ErrorCode.FENCED_STATE_EPOCH),
    ):
        with pytest.raises(BrokerError) as refused:
            check_write(state, leader_epoch=leader_epoch, state_epoch=state_epoch)
        assert refused.value.code == code
    with pytest.raises(BrokerError):
        initialized(state, state_epoch=3, start_offset=5, now_ms=1)
    assert initialized(state, state_epoch=4, start_offset=-1, now_ms=1) is None
    altered = initialized(state, state_epoch=5, start_offset=9, now_ms=1)
    assert altered is not None
    assert (altered.snapshot_epoch, altered.start_offset, altered.batches) == (1, 9, ())


@pytest.mark.parametrize("text", ["g", "g:short:0", "g:" + "A" * 22 + ":x", ":" + "A" * 22 + ":0"])
def test_a_key_that_is_none_is_refused(text: str) -> None:
    check_coordinator_key(coordinator_key(KEY))
    with pytest.raises(BrokerError):
        check_coordinator_key(text)


# --- over the wire


@pytest.fixture
def client(kafka_address: str) -> Iterator[WireClient]:
    client = WireClient(kafka_address)
    yield client
    client.close()


@pytest.fixture
def kafka_address() -> Iterator[str]:
    with EmbeddedCluster() as cluster:
        yield cluster.bootstrap_servers


def asked(client: WireClient, api: ApiKey, version: int, **partition: object) -> object:
    topic = {"topic_id": KEY.topic_id, "partitions": [{"partition": 0, **partition}]}
    return client.call(api, version, {"group_id": "g", "topics": [topic]}).results[0].partitions[0]


def test_the_coordinator_of_a_share_partition_keeps_its_state(client: WireClient) -> None:
    find = {"key_type": 2, "coordinator_keys": [coordinator_key(KEY), "nonsense"]}
    found = client.call(ApiKey.FIND_COORDINATOR, 6, find).coordinators
    assert [each.error_code for each in found] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    while asked(client, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1, leader_epoch=0).error_code:  # type: ignore[attr-defined]
        pass  # it loads
    read = asked(client, ApiKey.READ_SHARE_GROUP_STATE, 0, leader_epoch=1)
    assert read.error_code == ErrorCode.INVALID_REQUEST  # type: ignore[attr-defined]
    begun = asked(client, ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, state_epoch=1, start_offset=5)
    assert begun.error_code == ErrorCode.NONE  # type: ignore[attr-defined]
    assert asked(client, ApiKey.READ_SHARE_GROUP_STATE, 0, leader_epoch=3).start_offset == 5  # type: ignore[attr-defined]
    batch = {"first_offset": 5, "last_offset": 6, "delivery_state": 2, "delivery_count": 1}
    write = {"state_epoch": 1, "start_offset": -1, "delivery_complete_count": 2, "state_batches": [batch]}
    for wrong in ({"delivery_state": 9}, {"delivery_state": 1}, {"first_offset": 7}, {"delivery_count": -1}):
        no_batch = {**write, "state_batches": [{**batch, **wrong}]}
        refused = asked(client, ApiKey.WRITE_SHARE_GROUP_STATE, 1, leader_epoch=3, **no_batch)
        assert refused.error_code == ErrorCode.INVALID_REQUEST  # type: ignore[attr-defined]
    fenced = asked(client, ApiKey.WRITE_SHARE_GROUP_STATE, 1, leader_epoch=2, **write)
    assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH  # type: ignore[attr-defined]
    assert asked(client, ApiKey.WRITE_SHARE_GROUP_STATE, 1, leader_epoch=3, **write).error_code == 0  # type: ignore[attr-defined]
    summary = asked(client, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1, leader_epoch=3)
    assert (summary.start_offset, summary.delivery_complete_count, summary.leader_epoch) == (5, 2, 3)  # type: ignore[attr-defined]
    assert asked(client, ApiKey.DELETE_SHARE_GROUP_STATE, 0).error_code == ErrorCode.NONE  # type: ignore[attr-defined]
    read = asked(client, ApiKey.READ_SHARE_GROUP_STATE, 0, leader_epoch=3)
    assert read.error_code == ErrorCode.INVALID_REQUEST  # type: ignore[attr-defined]


# --- failover


def prepared(cluster: EmbeddedCluster) -> None:
    """Ten records for group `g`, which begins with the first."""
    client = WireClient(cluster.bootstrap_servers)
    config = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    resource = {"resource_type": 32, "resource_name": "g", "configs": [config]}
    client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
    data = [RecordData(offset=each, timestamp_ms=1, key=None, value=b"v", headers=[]) for each in range(10)]
    assert client.produce("jobs", encode_batch(data)).error_code == ErrorCode.NONE
    client.close()


def settle_some(member: ShareMember) -> None:
    """Accept 0 to 2, release 3, reject 4; 5 to 9 stay leased."""
    assert member.acquire("jobs") == [(0, 9, 1)]
    response = member.acknowledge_response("jobs", [(0, 2, ACCEPT), (3, 3, RELEASE), (4, 4, REJECT)])
    assert response.responses[0].partitions[0].error_code == ErrorCode.NONE


def test_what_is_settled_survives_a_kill_of_the_broker_and_what_is_leased_comes_again(tmp_path: object) -> None:
    """As on Kafka: a lease is never written, so the delivery that was under way does not count."""
    with EmbeddedCluster(data_dir=tmp_path) as cluster:  # type: ignore[arg-type]
        cluster.create_topic("jobs", config={"retention.ms": -1})
        prepared(cluster)
        member = ShareMember(cluster.bootstrap_servers, "g")
        settle_some(member)
        cluster.kill(1)
        cluster.start_broker(1)
        member.close()
        other = ShareMember(cluster.bootstrap_servers, "g")
        assert other.acquire("jobs") == [(3, 3, 2), (5, 9, 1)]
        other.close()


def test_another_leader_goes_on_where_the_killed_one_was() -> None:
    with EmbeddedCluster(brokers=3, config={"peer.death.detection.enable": "true"}) as cluster:
        cluster.create_topic("jobs", replication_factor=3)
        addresses = dict(zip(cluster.broker_ids, cluster.bootstrap_servers.split(","), strict=True))
        leader = cluster.leader("jobs")
        client = WireClient(addresses[leader])
        config = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
        resource = {"resource_type": 32, "resource_name": "g", "configs": [config]}
        client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
        data = [RecordData(offset=each, timestamp_ms=1, key=None, value=b"v", headers=[]) for each in range(10)]
        assert client.produce("jobs", encode_batch(data)).error_code == ErrorCode.NONE
        client.close()
        member = ShareMember(addresses[leader], "g")
        settle_some(member)
        cluster.kill(leader)
        member.close()
        successor = cluster.wait_for_leader("jobs")
        other = ShareMember(addresses[successor], "g")
        assert other.acquire("jobs", max_wait_ms=5_000, timeout_s=60) == [(3, 3, 2), (5, 9, 1)]
        other.close()


def test_acknowledgements_go_on_when_the_share_coordinator_is_killed() -> None:
    with EmbeddedCluster(brokers=3, config={"peer.death.detection.enable": "true"}) as cluster:
        cluster.create_topic("jobs", partitions=12, replication_factor=3)
        addresses = dict(zip(cluster.broker_ids, cluster.bootstrap_servers.split(","), strict=True))
        client = WireClient(addresses[1])
        config = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
        resource = {"resource_type": 32, "resource_name": "g", "configs": [config]}
        client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
        asked_for = {"topics": [{"topic_id": bytes(16), "name": "jobs"}], "allow_auto_topic_creation": False}
        topic_id = bytes(client.call(ApiKey.METADATA, 12, asked_for).topics[0].topic_id)
        keys = [coordinator_key(ShareKey("g", topic_id, number)) for number in range(12)]
        find = {"key_type": 2, "coordinator_keys": keys}
        while any(
            (found := client.call(ApiKey.FIND_COORDINATOR, 6, find).coordinators)[each].error_code for each in range(12)
        ):
            pass  # the topic of states is new
        client.close()
        leaders = [cluster.leader("jobs", number) for number in range(12)]
        partition = next(number for number in range(12) if found[number].node_id != leaders[number])
        member = ShareMember(addresses[leaders[partition]], "g")
        data = [RecordData(offset=each, timestamp_ms=1, key=None, value=b"v", headers=[]) for each in range(10)]
        produced = member.client.produce("jobs", encode_batch(data), partition=partition)
        assert produced.error_code == ErrorCode.NONE
        assert member.acquire("jobs", partition=partition, timeout_s=60) == [(0, 9, 1)]
        cluster.kill(found[partition].node_id)
        assert member.acknowledge("jobs", 0, 4, ACCEPT, partition=partition) == ErrorCode.NONE
        member.close_session("jobs")
        assert member.acquire("jobs", partition=partition, timeout_s=60) == [(5, 9, 2)]
        member.close()


# --- deleting what is old


def log_of_states(cluster: EmbeddedCluster) -> tuple[int, int]:
    """Return how many records the partitions of the topic keep, and how many were deleted."""
    facts = [each.led for (topic, _), each in cluster.facts().partitions.items() if topic == "__share_group_state"]
    kept = [each for each in facts if each is not None]
    return sum(each.log_end_offset - each.log_start_offset for each in kept), sum(
        each.log_start_offset for each in kept
    )


def settle_one_by_one(cluster: EmbeddedCluster, topic: str, records_: int) -> ShareMember:
    client = WireClient(cluster.bootstrap_servers)
    config = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    body = {"resources": [{"resource_type": 32, "resource_name": topic, "configs": [config]}], "validate_only": False}
    assert client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body).responses[0].error_code == 0
    data = [RecordData(each, 1, None, b"v") for each in range(records_ + 1)]
    assert client.produce(topic, encode_batch(data)).error_code == ErrorCode.NONE
    client.close()
    member = ShareMember(cluster.bootstrap_servers, topic)
    member.join(topic)
    assert member.acquire(topic, max_records=5_000, batch_size=5_000) == [(0, records_, 1)]
    for offset in range(1, records_ + 1):  # the first one stays, so that each of them is kept
        assert member.acknowledge(topic, offset, offset, ACCEPT if offset % 2 else REJECT) is ErrorCode.NONE
    return member


@pytest.fixture
def prunes_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker_embedded.coordinator.share.shard._SPARE_RECORDS", 40)


@pytest.mark.usefixtures("prunes_early")
def test_old_states_are_deleted_and_what_is_settled_is_known_after_a_restart(tmp_path: Path) -> None:
    config = {"share.coordinator.state.topic.num.partitions": 1}
    clock = VirtualClock()
    with EmbeddedCluster(config=config, clock=clock, data_dir=tmp_path) as cluster:
        cluster.create_topic("jobs", config={"retention.ms": -1})
        member = settle_one_by_one(cluster, "jobs", 60)
        assert log_of_states(cluster)[0] > 60
        clock.advance(hours=1)
        wait_until(lambda: log_of_states(cluster)[0] < 20, 30, what="few records")
        assert log_of_states(cluster)[1] > 50
        member.close()
        cluster.kill(1)
        cluster.start_broker(1)
        member = ShareMember(cluster.bootstrap_servers, "jobs")
        member.join("jobs")
        assert [each[:2] for each in member.acquire("jobs")] == [(0, 0)], "all others are settled"
        member.close()


@pytest.mark.usefixtures("prunes_early")
def test_nothing_is_deleted_while_the_new_snapshots_are_not_kept() -> None:
    config = {"share.coordinator.state.topic.num.partitions": 1}
    clock = VirtualClock()
    with EmbeddedCluster(config=config, clock=clock) as cluster:
        cluster.create_topic("jobs", config={"retention.ms": -1})
        member = settle_one_by_one(cluster, "jobs", 60)
        cluster.disks.full(1)
        clock.advance(minutes=10)
        assert log_of_states(cluster)[1] == 0
        cluster.disks.heal()
        clock.advance(minutes=10)
        wait_until(lambda: log_of_states(cluster)[1] > 50, 30, what="the next time")
        member.close()


class NotReplicated:
    """The context of a shard whose followers do not answer: appends are taken, and nothing is replicated."""

    def now_ms(self) -> int:
        return 1

    def append(self, batch: object, on_done: Callable[[ErrorCode], None]) -> None:
        on_done(ErrorCode.NONE)

    def when_replicated(self, callback: Callable[[], None]) -> None:
        """Never call back, as after a change of leadership."""


def test_a_request_that_waits_for_replicas_is_answered_when_the_coordinator_moves() -> None:
    """Found by the simulation, seed 1094: the leader's read had no answer, and its share partition never loaded."""
    shard = ShareShard(0, NotReplicated(), lambda: 500, lambda: 300_000)  # type: ignore[arg-type]
    shard.initialize(KEY, state_epoch=0, start_offset=5, on_done=lambda error: None)
    found: list[object] = []
    shard.read(KEY, leader_epoch=0, on_done=found.append)
    assert found == []
    shard.unload(ErrorCode.NOT_COORDINATOR)
    (error,) = found
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.NOT_COORDINATOR
