"""Offsets of share groups as operators see and change them: described with their lag, altered, deleted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from share_member import ACCEPT, RELEASE, ShareMember
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.records.record import RecordData, encode_batch


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as embedded:
        yield embedded


@pytest.fixture
def topic(cluster: EmbeddedCluster, client: WireClient, request: pytest.FixtureRequest) -> str:
    """A topic with ten records; the group of the same name begins with the first."""
    name = request.node.name.replace("_", "-")
    cluster.create_topic(name)
    config = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    resource = {"resource_type": 32, "resource_name": name, "configs": [config]}
    client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
    data = [RecordData(offset=each, timestamp_ms=1, key=None, value=b"v", headers=[]) for each in range(10)]
    assert client.produce(name, encode_batch(data)).error_code == ErrorCode.NONE
    return name


def described(client: WireClient, group: str, topics: list[Any] | None = None) -> Any:
    body = {"groups": [{"group_id": group, "topics": topics}]}
    return client.call(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, body).groups[0]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


def offset_and_lag(client: WireClient, group: str) -> tuple[int, int]:
    row = described(client, group).topics[0].partitions[0]
    return row.start_offset, row.lag


def altered(client: WireClient, topic: str, offset: int) -> Any:
    partition = {"partition_index": 0, "start_offset": offset}
    body = {"group_id": topic, "topics": [{"topic_name": topic, "partitions": [partition]}]}
    return client.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, body)


def test_a_member_that_joins_has_its_partitions_initialized(
    cluster: EmbeddedCluster, client: WireClient, topic: str
) -> None:
    member = ShareMember(cluster.bootstrap_servers, topic)
    member.join(topic)
    until(lambda: bool(described(client, topic).topics))
    row = described(client, topic).topics[0]
    assert (row.topic_name, row.topic_id) == (topic, member.topic_id(topic))
    assert (row.partitions[0].start_offset, row.partitions[0].lag) == (-1, -1)
    member.close()


def test_lag_counts_what_is_not_settled(cluster: EmbeddedCluster, client: WireClient, topic: str) -> None:
    member = ShareMember(cluster.bootstrap_servers, topic)
    member.join(topic)
    assert member.acquire(topic) == [(0, 9, 1)]
    response = member.acknowledge_response(topic, [(0, 1, ACCEPT), (4, 6, ACCEPT), (7, 7, RELEASE)])
    assert response.responses[0].partitions[0].error_code == ErrorCode.NONE
    assert member.acknowledge(topic, 2, 2, ACCEPT) == ErrorCode.NONE
    until(lambda: bool(described(client, topic).topics))
    assert offset_and_lag(client, topic) == (2, 4)  # the write says where the group was before it
    named = described(client, topic, [{"topic_name": "nobody's", "partitions": [3]}]).topics[0]
    assert (named.topic_name, named.partitions[0].start_offset, named.partitions[0].error_code) == ("nobody's", -1, 0)
    member.close()


def test_offsets_of_a_group_with_members_stay(cluster: EmbeddedCluster, client: WireClient, topic: str) -> None:
    member = ShareMember(cluster.bootstrap_servers, topic)
    member.join(topic)
    assert altered(client, topic, 3).error_code == ErrorCode.NON_EMPTY_GROUP
    deletion = {"group_id": topic, "topics": [{"topic_name": topic}]}
    assert client.call(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, deletion).error_code == ErrorCode.NON_EMPTY_GROUP
    assert altered(client, "nobody", 3).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    member.close()


def test_an_altered_group_goes_on_from_there(cluster: EmbeddedCluster, client: WireClient, topic: str) -> None:
    member = ShareMember(cluster.bootstrap_servers, topic)
    member.join(topic)
    member.acquire(topic)
    assert member.acknowledge(topic, 0, 9, ACCEPT) == ErrorCode.NONE
    member.close_session(topic)
    member.heartbeat(-1)
    answer = altered(client, topic, 6)
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
    assert offset_and_lag(client, topic) == (6, 4)
    assert member.acquire(topic) == [(6, 9, 1)]
    member.close()


def test_a_group_whose_offsets_are_deleted_begins_as_a_new_one(
    cluster: EmbeddedCluster, client: WireClient, topic: str
) -> None:
    member = ShareMember(cluster.bootstrap_servers, topic)
    member.join(topic)
    member.acquire(topic)
    assert member.acknowledge(topic, 0, 9, ACCEPT) == ErrorCode.NONE
    until(lambda: bool(described(client, topic).topics))
    member.close_session(topic)
    member.heartbeat(-1)
    deletion = {"group_id": topic, "topics": [{"topic_name": topic}, {"topic_name": "nobody's"}]}
    answer = client.call(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, deletion)
    assert [each.error_code for each in answer.responses] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert not described(client, topic).topics
    assert member.acquire(topic) == [(0, 9, 1)]
    member.close()


def test_a_deleted_group_leaves_no_state(cluster: EmbeddedCluster, client: WireClient, topic: str) -> None:
    member = ShareMember(cluster.bootstrap_servers, topic)
    member.join(topic)
    member.acquire(topic)
    assert member.acknowledge(topic, 0, 9, ACCEPT) == ErrorCode.NONE
    until(lambda: bool(described(client, topic).topics))
    member.close_session(topic)
    member.heartbeat(-1)
    deleted = client.call(ApiKey.DELETE_GROUPS, 2, {"groups_names": [topic]}).results[0]
    assert deleted.error_code == ErrorCode.NONE
    assert described(client, topic).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    state = {"group_id": topic, "topics": [{"topic_id": member.topic_id(topic), "partitions": [{"partition": 0}]}]}
    summary = client.call(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, state).results[0].partitions[0]
    assert summary.start_offset == -1
    member.close()
