"""What Apache Kafka 4.4 speaks and 4.1 does not: versions of requests, and what they answer."""

from __future__ import annotations

from typing import Any

import pytest
from apache_kafka import wanted

from ottla_wire.protocol import ApiKey, ErrorCode

CLIENT = {"client_software_name": "contract", "client_software_version": "1"}
NEW = {
    ApiKey.LIST_OFFSETS: 11,
    ApiKey.OFFSET_COMMIT: 10,
    ApiKey.OFFSET_FETCH: 10,
    ApiKey.API_VERSIONS: 5,
    ApiKey.TXN_OFFSET_COMMIT: 6,
    ApiKey.DESCRIBE_LOG_DIRS: 5,
    ApiKey.DELETE_GROUPS: 3,
}


GROUP, TRANSACTION = 0, 1


def has_coordinator(kafka: Any, name: str, key_type: int) -> bool:
    body = {"key_type": key_type, "coordinator_keys": [name]}
    return bool(kafka.call(ApiKey.FIND_COORDINATOR, 4, body).coordinators[0].error_code == 0)


@pytest.fixture(autouse=True)
def _needs_4_4() -> None:
    if (version := wanted()) is not None and version < "4.4":
        pytest.skip(f"Apache Kafka {version} does not speak these versions")


def test_newer_versions_are_listed(kafka: Any) -> None:
    answer = kafka.call(ApiKey.API_VERSIONS, 5, CLIENT)
    listed = {each.api_key: each.max_version for each in answer.api_keys}
    assert {key: listed[key] for key in NEW} == NEW


def test_a_client_that_reached_another_broker_than_it_meant_is_told_to_look_them_up_again(kafka: Any) -> None:
    cluster = kafka.call(ApiKey.DESCRIBE_CLUSTER, 0, {})
    node_id = cluster.brokers[0].broker_id

    def error_of(**destination: Any) -> int:
        return int(kafka.call(ApiKey.API_VERSIONS, 5, {**CLIENT, **destination}).error_code)

    assert error_of() == 0
    assert error_of(cluster_id=cluster.cluster_id, node_id=node_id) == 0
    assert error_of(cluster_id=cluster.cluster_id, node_id=node_id + 1) == ErrorCode.REBOOTSTRAP_REQUIRED
    assert error_of(cluster_id="another", node_id=node_id) == ErrorCode.REBOOTSTRAP_REQUIRED
    assert error_of(cluster_id=cluster.cluster_id) == ErrorCode.INVALID_REQUEST
    assert error_of(node_id=node_id) == ErrorCode.INVALID_REQUEST


def test_deleting_a_group_that_is_not_there_needs_no_message(kafka: Any) -> None:
    def delete() -> Any:
        (answer,) = kafka.call(ApiKey.DELETE_GROUPS, 3, {"groups_names": ["never-there"]}).results
        return answer

    kafka.until(lambda: has_coordinator(kafka, "never-there", GROUP))
    kafka.until(lambda: delete().error_code == ErrorCode.GROUP_ID_NOT_FOUND)
    assert delete().error_message is None, "the error says it all"


def test_offsets_in_a_transaction_are_committed_by_topic_id(kafka: Any) -> None:
    topic, group, transactional_id = kafka.create_topic(), "by-id", "by-id"
    asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    topic_id = kafka.call(ApiKey.METADATA, 12, asked).topics[0].topic_id
    kafka.until(lambda: has_coordinator(kafka, group, GROUP) and has_coordinator(kafka, transactional_id, TRANSACTION))
    body = {"transactional_id": transactional_id, "transaction_timeout_ms": 10_000}
    kafka.until(lambda: kafka.call(ApiKey.INIT_PRODUCER_ID, 4, body).error_code == 0)
    started = kafka.call(ApiKey.INIT_PRODUCER_ID, 4, body)
    ids = {
        "transactional_id": transactional_id,
        "producer_id": started.producer_id,
        "producer_epoch": started.producer_epoch,
    }
    partition = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}

    def commit(which: bytes) -> int:
        topics = [{"topic_id": which, "partitions": [partition]}]
        body = {**ids, "group_id": group, "generation_id": -1, "member_id": "", "topics": topics}
        (answer,) = kafka.call(ApiKey.TXN_OFFSET_COMMIT, 6, body).topics
        assert answer.topic_id == which
        return int(answer.partitions[0].error_code)

    kafka.until(lambda: commit(topic_id) == 0)
    assert commit(b"\x07" * 16) == ErrorCode.UNKNOWN_TOPIC_ID
    assert kafka.call(ApiKey.END_TXN, 5, {**ids, "committed": True}).error_code == 0
    stable = {"group_id": group, "topics": [{"topic_id": topic_id, "partition_indexes": [0]}]}

    def committed() -> int:
        answer = kafka.call(ApiKey.OFFSET_FETCH, 10, {"groups": [stable], "require_stable": True}).groups[0]
        return int(answer.topics[0].partitions[0].committed_offset)

    kafka.until(lambda: committed() == 5)


def test_features_are_at_the_levels_that_clients_decide_by(kafka: Any) -> None:
    answer = kafka.call(ApiKey.API_VERSIONS, 5, CLIENT)
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    assert levels["group.version"] == 1
    assert levels["transaction.version"] == 2
    assert supported["group.version"] == (0, 1)
    assert supported["transaction.version"] == (0, 2)
    assert supported["metadata.version"][0] == 7
    assert levels["metadata.version"] >= 29, "4.2-IV1: ListOffsets 11 between brokers"
