"""Topics, settings and the descriptions that clients ask for, over the wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.common.errors import BrokerError
from broker_embedded.server.requests.registry import TABLE
from ottla_wire.protocol import ZERO_UUID, ApiKey, ErrorCode, schemas

MakeBatch = Callable[..., bytes]
TOPIC, BROKER = 2, 4


def create(client: Any, name: str, *, partitions: int = 1, version: int = 7, **changes: Any) -> Any:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, **changes}
    return client.call(ApiKey.CREATE_TOPICS, version, {"topics": [topic], "timeout_ms": 1000}).topics[0]


def test_api_versions_lists_what_is_bound_and_produce_from_0(client: Any) -> None:
    body = {"client_software_name": "x", "client_software_version": "1"}
    listed = client.call(ApiKey.API_VERSIONS, 4, body).api_keys
    ranges = {each.api_key: (each.min_version, each.max_version) for each in listed}
    assert ranges[ApiKey.PRODUCE] == (0, 13)
    assert ranges[ApiKey.OFFSET_FOR_LEADER_EPOCH] == (2, 4)
    assert ranges.keys() == TABLE.keys()


def test_every_bound_version_has_a_schema() -> None:
    for key, bound in TABLE.items():
        versions = schemas.api(ApiKey(key)).versions
        assert bound.min_version in versions, bound.key
        assert bound.max_version in versions, bound.key


@pytest.mark.parametrize("name", ["", "no spaces", "-starts-badly"])
def test_a_client_name_that_is_no_name_is_refused(client: Any, name: str) -> None:
    body = {"client_software_name": name, "client_software_version": "1"}
    assert client.call(ApiKey.API_VERSIONS, 3, body).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(14))
def test_metadata_creates_a_missing_topic_and_shows_it_at_once(client: Any, version: int) -> None:
    body: dict[str, Any] = {"topics": [{"name": "auto"}], "allow_auto_topic_creation": True}
    (topic,) = client.call(ApiKey.METADATA, version, body).topics
    assert (topic.error_code, topic.name) == (0, "auto")
    assert [each.leader_id for each in topic.partitions] == [1]


def test_metadata_does_not_create_when_the_client_forbids_it(client: Any) -> None:
    body = {"topics": [{"name": "auto"}], "allow_auto_topic_creation": False}
    (topic,) = client.call(ApiKey.METADATA, 9, body).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.call(ApiKey.METADATA, 9, {"topics": None}).topics == []


def test_metadata_does_not_create_when_the_broker_forbids_it(make_wire_client: Callable[[str], Any]) -> None:
    with EmbeddedCluster(config={"auto.create.topics.enable": False}) as cluster:
        client = make_wire_client(cluster.bootstrap_servers)
        body = {"topics": [{"name": "auto"}], "allow_auto_topic_creation": True}
        (topic,) = client.call(ApiKey.METADATA, 9, body).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_metadata_says_why_a_name_cannot_be_a_topic(client: Any) -> None:
    body = {"topics": [{"name": "a b"}], "allow_auto_topic_creation": True}
    assert client.call(ApiKey.METADATA, 9, body).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_metadata_finds_topics_by_id(client: Any) -> None:
    created = create(client, "t")
    by_id = {"topic_id": created.topic_id, "name": None}
    assert client.call(ApiKey.METADATA, 12, {"topics": [by_id]}).topics[0].name == "t"
    unknown = {"topic_id": bytes(15) + b"\x01", "name": None}
    answer = client.call(ApiKey.METADATA, 12, {"topics": [unknown]}).topics[0]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_created_and_deleted_in_every_version(client: Any, version: int) -> None:
    assert create(client, "t", partitions=3, version=version).error_code == 0
    assert create(client, "t", version=version).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    delete = min(version, 6)
    names: dict[str, Any] = {"topic_names": ["t"]} if delete < 6 else {"topics": [{"name": "t"}]}
    (response,) = client.call(ApiKey.DELETE_TOPICS, delete, {**names, "timeout_ms": 1000}).responses
    assert response.error_code == 0
    (again,) = client.call(ApiKey.DELETE_TOPICS, delete, {**names, "timeout_ms": 1000}).responses
    assert again.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_created_topic_is_described_with_its_settings(client: Any) -> None:
    created = create(client, "t", partitions=2, configs=[{"name": "retention.ms", "value": "1234"}])
    assert (created.num_partitions, created.replication_factor) == (2, 1)
    assert created.topic_id != ZERO_UUID
    settings = {each.name: (each.value, each.config_source) for each in created.configs}
    assert settings["retention.ms"] == ("1234", 1)
    assert settings["segment.bytes"] == ("1073741824", 5)


def test_a_topic_is_deleted_by_id_and_its_name_is_free_again(client: Any, make_batch: MakeBatch) -> None:
    first = create(client, "t")
    client.produce("t", make_batch(b"old"))
    body = {"topics": [{"name": None, "topic_id": first.topic_id}], "timeout_ms": 1000}
    (response,) = client.call(ApiKey.DELETE_TOPICS, 6, body).responses
    assert (response.error_code, response.name) == (0, "t")
    second = create(client, "t")
    assert second.topic_id != first.topic_id
    assert client.fetch("t").high_watermark == 0


def test_a_topic_named_twice_in_a_request_is_refused(client: Any) -> None:
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
    (answer,) = client.call(ApiKey.CREATE_TOPICS, 4, {"topics": [topic, topic], "timeout_ms": 1}).topics
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_partitions_are_added_and_usable_at_once(client: Any, make_batch: MakeBatch) -> None:
    create(client, "t")
    body = {"topics": [{"name": "t", "count": 3, "assignments": None}], "timeout_ms": 1000}
    assert client.call(ApiKey.CREATE_PARTITIONS, 1, {**body, "validate_only": True}).results[0].error_code == 0
    assert len(client.call(ApiKey.METADATA, 9, {"topics": [{"name": "t"}]}).topics[0].partitions) == 1
    assert client.call(ApiKey.CREATE_PARTITIONS, 1, body).results[0].error_code == 0
    assert client.produce("t", make_batch(b"v"), partition=2).error_code == 0
    again = client.call(ApiKey.CREATE_PARTITIONS, 1, body).results[0]
    assert again.error_code == ErrorCode.INVALID_PARTITIONS
    assert "t has 3 partitions" in again.error_message


def test_the_facade_refuses_with_the_brokers_error(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", partitions=2, config={"cleanup.policy": "compact"})
    with pytest.raises(BrokerError, match="Topic 't' already exists") as refused:
        cluster.create_topic("t")
    assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


def describe(client: Any, kind: int, name: str, **changes: Any) -> dict[str, Any]:
    body = {"resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": None}], **changes}
    (result,) = client.call(ApiKey.DESCRIBE_CONFIGS, 4, body).results
    assert result.error_code == 0
    return {each.name: each for each in result.configs}


def test_a_setting_is_described_with_its_source_and_synonyms(make_wire_client: Callable[[str], Any]) -> None:
    with EmbeddedCluster(config={"log.retention.ms": 77}) as cluster:
        client = make_wire_client(cluster.bootstrap_servers)
        create(client, "t")
        change(client, TOPIC, "t", "retention.ms", "88")
        setting = describe(client, TOPIC, "t", include_synonyms=True, include_documentation=True)["retention.ms"]
    assert (setting.value, setting.config_source, setting.config_type) == ("88", 1, 5)
    assert [(each.name, each.value, each.source) for each in setting.synonyms] == [
        ("retention.ms", "88", 1),
        ("log.retention.ms", "77", 4),
    ]
    assert "deleted" in setting.documentation


def test_a_broker_describes_where_it_is(client: Any, cluster: EmbeddedCluster) -> None:
    settings = describe(client, BROKER, "1")
    assert settings["advertised.listeners"].value == f"PLAINTEXT://{cluster.bootstrap_servers}"
    for name in ("node.id", "listeners", "advertised.listeners", "log.dirs"):
        assert (settings[name].config_source, settings[name].read_only) == (4, True), name
    assert describe(client, BROKER, "") == {}


def change(client: Any, kind: int, name: str, key: str, value: str | None, *, operation: int = 0) -> Any:
    config = {"name": key, "config_operation": operation, "value": value}
    body = {"resources": [{"resource_type": kind, "resource_name": name, "configs": [config]}]}
    (response,) = client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body).responses
    return response


def test_a_topics_limit_holds_from_the_next_request_on(client: Any, make_batch: MakeBatch) -> None:
    create(client, "t")
    assert client.produce("t", make_batch(b"x" * 2_000)).error_code == 0
    assert change(client, TOPIC, "t", "max.message.bytes", "1000").error_code == 0
    assert client.produce("t", make_batch(b"x" * 2_000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert change(client, TOPIC, "t", "max.message.bytes", None, operation=1).error_code == 0
    assert client.produce("t", make_batch(b"x" * 2_000)).error_code == 0


def test_a_brokers_dynamic_setting_is_the_default_of_its_topics(client: Any, make_batch: MakeBatch) -> None:
    create(client, "t")
    assert change(client, BROKER, "", "message.max.bytes", "1000").error_code == 0
    assert client.produce("t", make_batch(b"x" * 2_000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    setting = describe(client, BROKER, "1")["message.max.bytes"]
    assert (setting.value, setting.config_source) == ("1000", 3)
    assert change(client, BROKER, "1", "message.max.bytes", "5000").error_code == 0
    assert client.produce("t", make_batch(b"x" * 2_000)).error_code == 0


def test_wrong_settings_are_refused_one_by_one(client: Any) -> None:
    create(client, "t")
    refused = change(client, TOPIC, "t", "retention.ms", "soon")
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert refused.error_message == "Invalid value soon for configuration retention.ms: wanted a whole number"
    assert change(client, TOPIC, "t", "retention.ms", "1", operation=9).error_code == ErrorCode.INVALID_REQUEST
    assert change(client, 99, "t", "retention.ms", "1").error_code == ErrorCode.INVALID_REQUEST
    body = {"resources": [{"resource_type": TOPIC, "resource_name": "nope", "configs": []}]}
    (missing,) = client.call(ApiKey.ALTER_CONFIGS, 2, body).responses
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_cluster_is_described(client: Any) -> None:
    answer = client.call(ApiKey.DESCRIBE_CLUSTER, 2, {"include_cluster_authorized_operations": True})
    assert answer.controller_id == 1
    assert [(each.broker_id, each.is_fenced) for each in answer.brokers] == [(1, False)]
    assert answer.cluster_authorized_operations > 0
    controllers = client.call(ApiKey.DESCRIBE_CLUSTER, 2, {"endpoint_type": 2})
    assert controllers.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_topics_are_described_page_by_page(client: Any) -> None:
    for name, partitions in (("a", 2), ("b", 3), ("c", 1)):
        create(client, name, partitions=partitions)
    seen: list[tuple[str, int]] = []
    cursor = None
    for _ in range(10):
        body = {"topics": [], "response_partition_limit": 2, "cursor": cursor}
        page = client.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, body)
        found = [(topic.name, each.partition_index) for topic in page.topics for each in topic.partitions]
        assert len(found) <= 2
        seen += found
        if page.next_cursor is None:
            break
        cursor = page.next_cursor.to_dict()
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]


def test_offsets_are_listed_by_end_and_by_time(client: Any, make_batch: MakeBatch) -> None:
    create(client, "t")
    client.produce("t", make_batch(b"a", b"b", timestamp_ms=1_600_000_000_000))
    client.produce("t", make_batch(b"c", timestamp_ms=1_650_000_000_000))
    wanted = {
        -1: (3, -1),
        -2: (0, -1),
        -3: (2, 1_650_000_000_000),
        -4: (0, -1),
        -5: (-1, -1),
        0: (0, 1_600_000_000_000),
        1_600_000_000_001: (1, 1_600_000_000_001),
        1_640_000_000_000: (2, 1_650_000_000_000),
        1_700_000_000_000: (-1, -1),
    }
    for timestamp, answer in wanted.items():
        body = {
            "replica_id": -1,
            "topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}],
        }
        found = client.call(ApiKey.LIST_OFFSETS, 9, body).topics[0].partitions[0]
        assert (found.offset, found.timestamp) == answer, timestamp


def test_records_are_deleted_up_to_an_offset(client: Any, make_batch: MakeBatch) -> None:
    create(client, "t")
    for value in (b"a", b"b", b"c"):
        client.produce("t", make_batch(value))

    def delete(offset: int, partition: int = 0) -> tuple[int, int]:
        partitions = [{"partition_index": partition, "offset": offset}]
        body = {"topics": [{"name": "t", "partitions": partitions}], "timeout_ms": 1000}
        answer = client.call(ApiKey.DELETE_RECORDS, 2, body).topics[0].partitions[0]
        return answer.error_code, answer.low_watermark

    assert delete(2) == (0, 2)
    assert client.fetch("t", 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert client.fetch("t", 2).log_start_offset == 2
    assert delete(9)[0] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete(-1) == (0, 3)
    assert delete(0, partition=5)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_end_of_a_leader_epoch_is_found(client: Any, make_batch: MakeBatch) -> None:
    create(client, "t")
    client.produce("t", make_batch(b"a", b"b"))
    body = {"topics": [{"topic": "t", "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}]}
    for version in (2, 3, 4):
        answer = client.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, body).topics[0].partitions[0]
        assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, 0, 2)


def test_producers_and_log_directories_are_described(client: Any, make_batch: MakeBatch) -> None:
    create(client, "t")
    producer = client.call(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout_ms": 1000})
    assert producer.error_code == 0
    batch = make_batch(b"a", b"b", producer_id=producer.producer_id, producer_epoch=0, base_sequence=0)
    assert client.produce("t", batch).error_code == 0
    body = {"topics": [{"name": "t", "partition_indexes": [0]}]}
    (partition,) = client.call(ApiKey.DESCRIBE_PRODUCERS, 0, body).topics[0].partitions
    (found,) = partition.active_producers
    assert (found.producer_id, found.producer_epoch, found.last_sequence) == (producer.producer_id, 0, 1)
    (directory,) = client.call(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None}).results
    sizes = {topic.name: [each.partition_size for each in topic.partitions] for topic in directory.topics}
    assert sizes == {"t": [len(batch)]}
    assert directory.total_bytes > directory.usable_bytes > 0


def test_a_repeated_batch_of_an_idempotent_producer_is_appended_once(client: Any, make_batch: MakeBatch) -> None:
    create(client, "t")
    body = {"transactional_id": None, "transaction_timeout_ms": 1000}
    ids = {client.call(ApiKey.INIT_PRODUCER_ID, version, body).producer_id for version in range(7)}
    assert len(ids) == 7, "every producer has its own id"
    batch = make_batch(b"a", producer_id=min(ids), producer_epoch=0, base_sequence=0)
    assert [client.produce("t", batch).base_offset for _ in range(3)] == [0, 0, 0]
    assert client.fetch("t").high_watermark == 1
    gap = make_batch(b"b", producer_id=min(ids), producer_epoch=0, base_sequence=5)
    assert client.produce("t", gap).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_resources_with_settings_are_listed(client: Any) -> None:
    create(client, "t")
    listed = client.call(ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": [TOPIC, BROKER]}).config_resources
    assert {(each.resource_type, each.resource_name) for each in listed} == {(TOPIC, "t"), (BROKER, "1")}
    assert client.call(ApiKey.LIST_CONFIG_RESOURCES, 0, {}).config_resources == []


def test_telemetry_is_answered_with_nothing_to_push(client: Any) -> None:
    answer = client.call(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, {"client_instance_id": ZERO_UUID})
    assert answer.client_instance_id != ZERO_UUID
    assert answer.requested_metrics == []
    push = {
        "client_instance_id": answer.client_instance_id,
        "subscription_id": answer.subscription_id,
        "metrics": b"",
    }
    assert client.call(ApiKey.PUSH_TELEMETRY, 0, push).error_code == 0
    push["subscription_id"] = 77
    assert client.call(ApiKey.PUSH_TELEMETRY, 0, push).error_code == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
