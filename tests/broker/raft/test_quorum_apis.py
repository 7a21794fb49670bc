"""The quorum's APIs and its log, asked of a running broker over the wire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.metadata import serde
from broker_embedded.metadata.records import CreateTopic
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.records.batch import iter_batches
from ottla_wire.records.record import decode_batch

TOPIC = "__cluster_metadata"


@pytest.fixture
def one_broker() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        yield running


@pytest.fixture
def client(one_broker: EmbeddedCluster) -> Iterator[WireClient]:
    connected = WireClient(one_broker.bootstrap_servers)
    yield connected
    connected.close()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_quorum_is_described_with_its_leader_and_its_voters(client: WireClient, version: int) -> None:
    body = {"topics": [{"topic_name": TOPIC, "partitions": [{"partition_index": 0}, {"partition_index": 1}]}]}
    answer = client.call(ApiKey.DESCRIBE_QUORUM, version, body)
    assert answer.error_code == 0
    described, unknown = answer.topics[0].partitions
    assert (described.error_code, described.leader_id) == (0, 1)
    assert described.leader_epoch >= 1
    assert [each.replica_id for each in described.current_voters] == [1]
    assert described.current_voters[0].log_end_offset == described.high_watermark > 0
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= 2:
        (node,) = answer.nodes
        assert node.node_id == 1
        assert node.listeners[0].port == client.socket.getpeername()[1]


def epoch_of(client: WireClient) -> int:
    body = {"topics": [{"topic_name": TOPIC, "partitions": [{"partition_index": 0}]}]}
    epoch: int = client.call(ApiKey.DESCRIBE_QUORUM, 0, body).topics[0].partitions[0].leader_epoch
    return epoch


def about_the_log(**partition: Any) -> dict[str, Any]:
    return {"topics": [{"topic_name": TOPIC, "partitions": [{"partition_index": 0, **partition}]}]}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_only_voter_votes_for_nobody_else(client: WireClient, version: int) -> None:
    epoch = epoch_of(client)
    ids = {"replica_directory_id": bytes(16), "voter_directory_id": bytes(16)} if version else {}
    body = about_the_log(replica_epoch=epoch, replica_id=7, last_offset_epoch=0, last_offset=1 << 40, **ids)
    (partition,) = client.call(ApiKey.VOTE, version, body).topics[0].partitions
    assert not partition.vote_granted
    assert epoch_of(client) == epoch


@pytest.mark.parametrize(
    ("api", "version"),
    [
        (ApiKey.BEGIN_QUORUM_EPOCH, 0),
        (ApiKey.BEGIN_QUORUM_EPOCH, 1),
        (ApiKey.END_QUORUM_EPOCH, 0),
        (ApiKey.END_QUORUM_EPOCH, 1),
    ],
)
def test_who_claims_an_epoch_that_is_over_is_told_the_present_one(
    client: WireClient, api: ApiKey, version: int
) -> None:
    extra: dict[str, Any] = {}
    if api is ApiKey.BEGIN_QUORUM_EPOCH and version:
        extra = {"voter_directory_id": bytes(16)}
    elif api is ApiKey.END_QUORUM_EPOCH:
        extra = {"preferred_candidates": []} if version else {"preferred_successors": []}
    body = about_the_log(leader_id=7, leader_epoch=0, **extra)
    if version:
        body["leader_endpoints"] = []
    (partition,) = client.call(api, version, body).topics[0].partitions
    assert partition.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert partition.leader_id == 1


def test_the_metadata_log_can_be_read_by_anybody_who_fetches_it(
    one_broker: EmbeddedCluster, client: WireClient
) -> None:
    one_broker.create_topic("orders")
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "log_start_offset": -1}
    body = {
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": TOPIC, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    (read,) = client.call(ApiKey.FETCH, 12, body).responses[0].partitions
    assert read.error_code == 0
    data = bytes(read.records)
    values = [
        record.value
        for position, header in iter_batches(data)
        if not header.is_control
        for record in decode_batch(data, position)
    ]
    topics = [each.name for each in map(serde.decode, filter(None, values)) if isinstance(each, CreateTopic)]
    assert topics == ["orders"]
