"""What metadata.version 4.3-IV0 to 4.4-IV2 added: cordoned log directories, and controllers and voters that change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from apache_kafka import wanted

from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

BROKER, SET, DELETE = 4, 0, 1


@pytest.fixture(autouse=True)
def _needs_4_4() -> None:
    if (version := wanted()) is not None and version < "4.4":
        pytest.skip(f"Apache Kafka {version} does not have these levels")


class LogDirs:
    """The log directories of the only broker."""

    def __init__(self, kafka: Any) -> None:
        self.kafka = kafka
        (broker,) = kafka.call(ApiKey.DESCRIBE_CLUSTER, 0, {}).brokers
        self.node_id: int = broker.broker_id

    def cordon(self, value: str | None) -> Message:
        """Returns the response; None takes the setting away."""
        operation = DELETE if value is None else SET
        config = {"name": "cordoned.log.dirs", "config_operation": operation, "value": value}
        resource = {"resource_type": BROKER, "resource_name": str(self.node_id), "configs": [config]}
        body = {"resources": [resource], "validate_only": False}
        answer: Message = self.kafka.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body).responses[0]
        return answer

    @property
    def cordoned(self) -> dict[str, bool]:
        results = self.kafka.call(ApiKey.DESCRIBE_LOG_DIRS, 5, {"topics": None}).results
        return {each.log_dir: each.is_cordoned for each in results}

    def create(self, name: str, **topic: Any) -> int:
        topic = {"num_partitions": 1, "replication_factor": 1, **topic}
        return int(self.kafka.create(name=name, validate_only=True, **topic).error_code)


@pytest.fixture
def log_dirs(kafka: Any) -> Iterator[LogDirs]:
    found = LogDirs(kafka)
    yield found
    found.cordon(None)
    kafka.until(lambda: not any(found.cordoned.values()))
    kafka.until(lambda: found.create("again") == ErrorCode.NONE)


def test_the_newest_level_is_that_of_4_4(kafka: Any) -> None:
    body = {"client_software_name": "contract", "client_software_version": "1"}
    answer = kafka.call(ApiKey.API_VERSIONS, 4, body)
    supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    assert supported["metadata.version"] == (7, 33)
    assert levels["metadata.version"] == 33


@pytest.mark.parametrize("named", ["*", "by its path"])
def test_a_broker_whose_log_directories_are_all_cordoned_gets_no_new_replicas(
    kafka: Any, log_dirs: LogDirs, named: str
) -> None:
    old = kafka.create_topic()
    assert not any(log_dirs.cordoned.values())
    value = "*" if named == "*" else ",".join(log_dirs.cordoned)
    assert log_dirs.cordon(value).error_code == ErrorCode.NONE
    kafka.until(lambda: all(log_dirs.cordoned.values()))
    kafka.until(lambda: log_dirs.create("new") == ErrorCode.INVALID_REPLICATION_FACTOR)
    assigned = [{"partition_index": 0, "broker_ids": [log_dirs.node_id]}]
    refused = log_dirs.create("new", num_partitions=-1, replication_factor=-1, assignments=assigned)
    assert refused == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    more = {"topics": [{"name": old, "count": 2, "assignments": None}], "timeout_ms": 10_000, "validate_only": True}
    (grown,) = kafka.call(ApiKey.CREATE_PARTITIONS, 3, more).results
    assert grown.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    moved = {"name": old, "partitions": [{"partition_index": 0, "replicas": [log_dirs.node_id]}]}
    answer = kafka.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"timeout_ms": 10_000, "topics": [moved]})
    assert answer.responses[0].partitions[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert kafka.offset(old, -1) == 0, "what is there is served"


def test_only_log_directories_of_the_broker_can_be_cordoned(log_dirs: LogDirs) -> None:
    answer = log_dirs.cordon("/nowhere/at/all")
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    wanted_text = "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : /nowhere"
    assert wanted_text in answer.error_message
    assert not any(log_dirs.cordoned.values())


def test_a_controller_that_is_active_or_unknown_is_not_unregistered(kafka: Any) -> None:
    def unregister(node: int) -> int:
        return int(kafka.call(ApiKey.UNREGISTER_CONTROLLER, 0, {"controller_id": node}).error_code)

    active = kafka.call(ApiKey.DESCRIBE_CLUSTER, 0, {}).controller_id
    assert unregister(active) == ErrorCode.INVALID_REQUEST
    assert unregister(77) == ErrorCode.CONTROLLER_ID_NOT_REGISTERED


def test_a_quorum_that_was_formatted_with_its_voters_keeps_them(kafka: Any) -> None:
    cluster_id = kafka.call(ApiKey.DESCRIBE_CLUSTER, 0, {}).cluster_id
    voter = {"cluster_id": cluster_id, "voter_id": 77, "voter_directory_id": b"7" * 16}
    listener = {"name": "CONTROLLER", "host": "127.0.0.1", "port": 1}
    for version in (0, 1):
        added = kafka.call(ApiKey.ADD_RAFT_VOTER, version, {**voter, "timeout_ms": 5_000, "listeners": [listener]})
        assert added.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "kraft.version feature is 0" in added.error_message
    removed = kafka.call(ApiKey.REMOVE_RAFT_VOTER, 0, voter)
    assert removed.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "kraft.version feature is 0" in removed.error_message
    elsewhere = {**voter, "cluster_id": "another"}
    assert kafka.call(ApiKey.REMOVE_RAFT_VOTER, 0, elsewhere).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
