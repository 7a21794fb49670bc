"""What administration and Metadata answer."""

from __future__ import annotations

import os
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from ottla.sync.client.reachable import NO_TOPIC, brokers_of, metadata_of
from ottla_wire.protocol import ApiKey, ErrorCode

_numbers = count(1)
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND = 0, 1, 2


@pytest.fixture
def name() -> str:
    return f"admin-{os.getpid()}-{next(_numbers)}"


class TestCreatingTopics:
    def test_a_topic_has_what_was_asked_for(self, kafka: Any, name: str) -> None:
        result = kafka.create(name=name, num_partitions=3, replication_factor=1, configs=[])
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 3, 1)
        kafka.until(lambda: kafka.leader(name, 2) > 0)

    def test_minus_one_takes_the_broker_s_defaults(self, kafka: Any, name: str) -> None:
        result = kafka.create(name=name, num_partitions=-1, replication_factor=-1)
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 1, 1)

    @pytest.mark.parametrize(
        ("wanted", "error"),
        [
            ({"name": "no spaces"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ({"name": ".."}, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ({"name": "x" * 250}, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
            ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
            ({"replication_factor": 9}, ErrorCode.INVALID_REPLICATION_FACTOR),
            ({"configs": [{"name": "no.such.config", "value": "1"}]}, ErrorCode.INVALID_CONFIG),
            ({"configs": [{"name": "retention.ms", "value": "soon"}]}, ErrorCode.INVALID_CONFIG),
            ({"configs": [{"name": "cleanup.policy", "value": "burn"}]}, ErrorCode.INVALID_CONFIG),
            ({"assignments": [{"partition_index": 0, "broker_ids": [1]}]}, ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_what_cannot_be_is_refused_by_its_error(
        self, kafka: Any, name: str, wanted: dict[str, Any], error: ErrorCode
    ) -> None:
        result = kafka.create(**{"name": name, "num_partitions": 1, "replication_factor": 1, **wanted})
        assert result.error_code == error

    def test_a_topic_exists_once(self, kafka: Any) -> None:
        name = kafka.create_topic()
        result = kafka.create(name=name, num_partitions=1, replication_factor=1)
        assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    def test_dots_and_underscores_collide(self, kafka: Any, name: str) -> None:
        kafka.create(name=f"{name}.a", num_partitions=1, replication_factor=1)
        result = kafka.create(name=f"{name}_a", num_partitions=1, replication_factor=1)
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_a_manual_assignment_names_brokers_that_exist(self, kafka: Any, name: str) -> None:
        manual = {"name": name, "num_partitions": -1, "replication_factor": -1}
        result = kafka.create(**manual, assignments=[{"partition_index": 0, "broker_ids": [77]}])
        assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT

    def test_validating_creates_nothing(self, kafka: Any, name: str) -> None:
        result = kafka.create(name=name, num_partitions=1, replication_factor=1, validate_only=True)
        assert result.error_code == 0
        body = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        assert kafka.call(ApiKey.METADATA, 9, body).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TestChangingTopics:
    def grow(self, kafka: Any, name: str, count: int) -> int:
        body = {"topics": [{"name": name, "count": count, "assignments": None}], "timeout_ms": 10_000}
        return int(kafka.call(ApiKey.CREATE_PARTITIONS, 3, {**body, "validate_only": False}).results[0].error_code)

    def test_partitions_are_added_and_never_taken_away(self, kafka: Any) -> None:
        name = kafka.create_topic(partitions=2)
        assert self.grow(kafka, name, 4) == 0
        kafka.until(lambda: kafka.leader(name, 3) > 0)
        assert self.grow(kafka, name, 4) == ErrorCode.INVALID_PARTITIONS
        assert self.grow(kafka, name, 1) == ErrorCode.INVALID_PARTITIONS
        assert self.grow(kafka, "no-such-topic", 4) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_a_deleted_topic_is_unknown(self, kafka: Any) -> None:
        name = kafka.create_topic()

        def delete() -> int:
            body = {"topics": [{"name": name, "topic_id": bytes(16)}], "timeout_ms": 10_000}
            return int(kafka.call(ApiKey.DELETE_TOPICS, 6, body).responses[0].error_code)

        assert delete() == 0
        kafka.until(lambda: kafka.leader(name) == -1)
        assert delete() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TestConfigs:
    def alter(self, kafka: Any, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False) -> Any:
        configs = [{"name": key, "config_operation": op, "value": value} for key, op, value in changes]
        resource = {"resource_type": TOPIC, "resource_name": name, "configs": configs}
        body = {"resources": [resource], "validate_only": validate_only}
        return kafka.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body).responses[0].error_code

    def value(self, kafka: Any, name: str, key: str) -> tuple[str | None, int]:
        """A setting and its source: 1 the topic itself, 5 the default."""
        resource = {"resource_type": TOPIC, "resource_name": name, "configuration_keys": [key]}
        answer = kafka.call(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource], "include_synonyms": True})
        assert answer.results[0].error_code == 0
        (config,) = answer.results[0].configs
        return config.value, config.config_source

    def test_a_setting_is_set_and_goes_back_to_its_default(self, kafka: Any) -> None:
        name = kafka.create_topic()
        assert self.value(kafka, name, "retention.ms") == ("604800000", 5)
        assert self.alter(kafka, name, ("retention.ms", SET, "1000")) == 0
        kafka.until(lambda: self.value(kafka, name, "retention.ms") == ("1000", 1))
        assert self.alter(kafka, name, ("retention.ms", DELETE, None)) == 0
        kafka.until(lambda: self.value(kafka, name, "retention.ms") == ("604800000", 5))

    def test_a_list_is_appended_to(self, kafka: Any) -> None:
        name = kafka.create_topic(configs={"cleanup.policy": "delete"})
        assert self.alter(kafka, name, ("cleanup.policy", APPEND, "compact")) == 0
        kafka.until(lambda: self.value(kafka, name, "cleanup.policy")[0] == "delete,compact")

    def test_a_list_setting_alone_is_appended_to(self, kafka: Any) -> None:
        name = kafka.create_topic()
        assert self.alter(kafka, name, ("retention.ms", APPEND, "1")) == ErrorCode.INVALID_CONFIG

    def test_unusable_values_are_refused(self, kafka: Any) -> None:
        name = kafka.create_topic()
        assert self.alter(kafka, name, ("retention.ms", SET, "x")) == ErrorCode.INVALID_CONFIG
        assert self.alter(kafka, name, ("no.such", SET, "1")) == ErrorCode.INVALID_CONFIG
        twice = self.alter(kafka, name, ("retention.ms", SET, "1"), ("retention.ms", DELETE, None))
        assert twice == ErrorCode.INVALID_REQUEST

    def test_a_topic_that_does_not_exist(self, kafka: Any, name: str) -> None:
        assert self.alter(kafka, name, ("retention.ms", SET, "1")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TestMetadata:
    def test_a_topic_that_does_not_exist_is_unknown(self, kafka: Any, name: str) -> None:
        answer = kafka.call(ApiKey.METADATA, 9, {"topics": [{"name": name}], "allow_auto_topic_creation": False})
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_a_topic_id_that_does_not_exist_is_unknown(self, kafka: Any) -> None:
        body = {"topics": [{"topic_id": b"\x07" * 16, "name": None}], "allow_auto_topic_creation": False}
        assert kafka.call(ApiKey.METADATA, 12, body).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    def test_an_invalid_name_is_invalid(self, kafka: Any) -> None:
        answer = kafka.call(ApiKey.METADATA, 9, {"topics": [{"name": "no spaces"}], "allow_auto_topic_creation": False})
        assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_asking_may_create(self, kafka: Any, name: str) -> None:
        def ask() -> Any:
            return kafka.call(ApiKey.METADATA, 9, {"topics": [{"name": name}], "allow_auto_topic_creation": True})

        kafka.until(lambda: ask().topics[0].error_code == 0)
        assert len(ask().topics[0].partitions) == 1

    def test_one_topic_s_partitions_name_leader_and_replicas(self, kafka: Any) -> None:
        name = kafka.create_topic(partitions=2)
        body = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        answer = kafka.call(ApiKey.METADATA, 12, {"topics": [{"topic_id": bytes(16), "name": name}]})
        assert answer.cluster_id
        brokers = {each.node_id for each in answer.brokers}
        assert answer.controller_id in brokers
        for partition in kafka.call(ApiKey.METADATA, 9, body).topics[0].partitions:
            assert partition.error_code == 0
            assert partition.leader_id in brokers
            assert partition.replica_nodes == partition.isr_nodes == [partition.leader_id]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_without_an_authorizer_there_are_no_acls(kafka: Any, version: int) -> None:
    any_acl = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    described = kafka.call(ApiKey.DESCRIBE_ACLS, version, any_acl)
    assert (described.error_code, list(described.resources)) == (ErrorCode.SECURITY_DISABLED, [])
    topic = {"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:a", "host": "*"}
    creations = [{**topic, "operation": operation, "permission_type": 3} for operation in (3, 4)]
    created = kafka.call(ApiKey.CREATE_ACLS, version, {"creations": creations})
    assert [each.error_code for each in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
    deleted = kafka.call(ApiKey.DELETE_ACLS, version, {"filters": [any_acl]})
    assert [(each.error_code, list(each.matching_acls)) for each in deleted.filter_results] == [
        (ErrorCode.SECURITY_DISABLED, [])
    ]
    assert described.error_message == "No Authorizer is configured on the broker"
    for each in (*created.results, *deleted.filter_results):
        assert each.error_message == "No Authorizer is configured."


def test_each_api_has_the_versions_of_kafka(kafka: Any) -> None:
    """What Kafka 4.1 lists for the APIs that clients use, (lowest, highest), is listed; a later one may be as well."""
    answer = kafka.call(ApiKey.API_VERSIONS, 4, {"client_software_name": "contract", "client_software_version": "1"})
    listed = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    missing = {
        api.name: (wanted, listed.get(int(api)))
        for api, wanted in KAFKA_4_1.items()
        if int(api) not in listed or listed[int(api)][0] > wanted[0] or listed[int(api)][1] < wanted[1]
    }
    assert not missing


KAFKA_4_1 = {
    ApiKey.PRODUCE: (0, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 10),
    ApiKey.METADATA: (0, 13),
    ApiKey.OFFSET_COMMIT: (2, 9),
    ApiKey.OFFSET_FETCH: (1, 9),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.ALTER_CONFIGS: (0, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 4),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
}


class TestAskingForTheBrokers:
    def test_the_brokers_are_told_without_topics_and_nothing_is_created(
        self, kafka: Any, bootstrap_servers: str, name: str
    ) -> None:
        kafka.create(name=name, num_partitions=1, replication_factor=1)
        clients = [
            Producer({"bootstrap.servers": bootstrap_servers}),
            AdminClient({"bootstrap.servers": bootstrap_servers}),
        ]
        for client in clients:
            before = set(client.list_topics(timeout=20).topics)
            found = metadata_of(client, 20, NO_TOPIC)
            assert list(found.topics) == [NO_TOPIC]
            assert found.topics[NO_TOPIC].error.code() == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert brokers_of(client, 20).keys() == client.list_topics(timeout=20).brokers.keys()
            assert set(client.list_topics(timeout=20).topics) == before
