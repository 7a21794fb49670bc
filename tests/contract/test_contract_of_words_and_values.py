"""What clients' own tests compare with Kafka: settings of brokers, where values come from, the words of refusals."""

from __future__ import annotations

from typing import Any

import pytest
from apache_kafka import wanted

from ottla_wire.protocol import ApiKey, ErrorCode

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
DEFAULT = 5
FIXED = "Cannot update these configs dynamically: "


@pytest.fixture
def node(kafka: Any) -> str:
    brokers = kafka.call(ApiKey.METADATA, 9, {"topics": []}).brokers
    return str(brokers[0].node_id)


def change(kafka: Any, kind: int, name: str, *operations: tuple[str, int, str | None]) -> Any:
    configs = [{"name": each, "config_operation": how, "value": value} for each, how, value in operations]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    body = {"resources": [resource], "validate_only": True}
    return kafka.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body).responses[0]


def replace(kafka: Any, kind: int, name: str, **configs: str) -> Any:
    given = [{"name": each.replace("_", "."), "value": value} for each, value in configs.items()]
    resource = {"resource_type": kind, "resource_name": name, "configs": given}
    return kafka.call(ApiKey.ALTER_CONFIGS, 2, {"resources": [resource], "validate_only": True}).responses[0]


def described(kafka: Any, kind: int, name: str, keys: list[str] | None) -> dict[str, Any]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    answer = kafka.call(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource], "include_synonyms": True}).results[0]
    assert answer.error_code == ErrorCode.NONE
    return {each.name: each for each in answer.configs}


@pytest.mark.parametrize(
    ("setting", "how", "value", "error", "words"),
    [
        ("plugin.of.somebody", SET, "1", ErrorCode.NONE, None),
        ("plugin.of.somebody", DELETE, None, ErrorCode.NONE, None),
        ("plugin.of.somebody", SET, None, ErrorCode.INVALID_REQUEST, "Null value not supported for : plugin.of.some"),
        ("broker.id", SET, "7", ErrorCode.INVALID_REQUEST, FIXED),
        ("log.dirs", SET, "/x", ErrorCode.INVALID_REQUEST, FIXED),
        ("group.max.size", SET, "3", ErrorCode.INVALID_REQUEST, FIXED),
        ("log.retention.ms", SET, "1000", ErrorCode.NONE, None),
        ("log.retention.ms", SET, "x", ErrorCode.INVALID_REQUEST, "Invalid value x for configuration log.retention.ms"),
    ],
)
@pytest.mark.parametrize("of_all", [True, False], ids=["all brokers", "one broker"])
def test_a_brokers_setting_is_taken_or_refused_as_by_kafka(
    kafka: Any, node: str, of_all: bool, setting: str, how: int, value: str | None, error: ErrorCode, words: str | None
) -> None:
    answer = change(kafka, BROKER, "" if of_all else node, (setting, how, value))
    assert answer.error_code == error
    assert words is None or answer.error_message.startswith(words)


@pytest.mark.parametrize("how", [APPEND, SUBTRACT])
def test_an_unknown_setting_is_no_list(kafka: Any, node: str, how: int) -> None:
    answer = change(kafka, BROKER, node, ("plugin.of.somebody", how, "1"))
    if (wanted() or "4.4") < "4.4":
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR, "Apache Kafka had not thought of it"
        return
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert answer.error_message == "Unknown config name: plugin.of.somebody"


def test_all_settings_of_a_broker_can_be_replaced_by_one_that_it_does_not_know(kafka: Any, node: str) -> None:
    assert replace(kafka, BROKER, node, plugin_of_somebody="1").error_code == ErrorCode.NONE
    answer = replace(kafka, BROKER, node, broker_id="7")
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message.startswith(FIXED)


def test_a_setting_is_named_once_in_a_request(kafka: Any, node: str) -> None:
    answer = change(kafka, BROKER, node, ("log.retention.ms", SET, "1"), ("log.retention.ms", SET, "2"))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message.startswith("Error due to duplicate config keys")


def test_an_unknown_setting_of_a_broker_is_kept_and_its_value_never_shown(kafka: Any, node: str) -> None:
    def set_to(how: int, value: str | None) -> None:
        configs = [{"name": "plugin.of.somebody", "config_operation": how, "value": value}]
        resource = {"resource_type": BROKER, "resource_name": node, "configs": configs}
        body = {"resources": [resource], "validate_only": False}
        assert kafka.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body).responses[0].error_code == ErrorCode.NONE

    set_to(SET, "a secret")
    try:
        kafka.until(lambda: "plugin.of.somebody" in described(kafka, BROKER, node, ["plugin.of.somebody"]))
        found = described(kafka, BROKER, node, ["plugin.of.somebody"])["plugin.of.somebody"]
        assert (found.value, found.is_sensitive, found.read_only) == (None, True, True)
    finally:
        set_to(DELETE, None)


@pytest.mark.parametrize("kind", [TOPIC, BROKER], ids=["topic", "broker"])
def test_no_names_ask_for_all_settings(kafka: Any, node: str, kind: int) -> None:
    name = kafka.create_topic() if kind == TOPIC else node
    everything = described(kafka, kind, name, None)
    assert len(everything) > 30
    assert described(kafka, kind, name, []).keys() == everything.keys()


def test_the_synonyms_of_a_topics_setting_are_the_brokers_that_have_a_value(kafka: Any) -> None:
    found = described(kafka, TOPIC, kafka.create_topic(), None)
    synonyms = {name: [(s.name, s.value, s.source) for s in each.synonyms] for name, each in found.items()}
    for name in ("retention.ms", "segment.ms", "segment.jitter.ms", "flush.ms"):
        assert (synonyms[name], found[name].config_source) == ([], DEFAULT)
    assert synonyms["leader.replication.throttled.replicas"] == []
    assert synonyms["retention.bytes"] == [("log.retention.bytes", "-1", DEFAULT)]
    assert synonyms["local.retention.ms"] == [("log.local.retention.ms", "-2", DEFAULT)]


def test_the_hours_of_a_broker_have_a_default_and_not_the_milliseconds(kafka: Any, node: str) -> None:
    expected = {
        "log.flush.interval.ms": None,
        "log.retention.hours": "168",
        "log.retention.minutes": None,
        "log.retention.ms": None,
        "log.roll.hours": "168",
        "log.roll.jitter.hours": "0",
        "log.roll.jitter.ms": None,
        "log.roll.ms": None,
    }
    found = described(kafka, BROKER, node, list(expected))
    assert {name: each.value for name, each in found.items()} == expected
    for name, value in expected.items():
        synonyms = [(s.name, s.value, s.source) for s in found[name].synonyms]
        assert synonyms == ([] if value is None else [(name, value, DEFAULT)])


UNSET = {"num_partitions": -1, "replication_factor": -1}
ONE = {"num_partitions": 1, "replication_factor": 1}


def assigned(*brokers: list[int], numbers: list[int] | None = None) -> dict[str, Any]:
    pairs = zip(numbers or range(len(brokers)), brokers, strict=True)
    return UNSET | {"assignments": [{"partition_index": n, "broker_ids": each} for n, each in pairs]}


@pytest.mark.parametrize(
    ("topic", "error", "words"),
    [
        (ONE | {"name": "a b"}, "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: 'a b' contains one or more chara"),
        (ONE | {"name": ""}, "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: the empty string is not allowed"),
        (ONE | {"name": ".."}, "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: '..' is not allowed"),
        (ONE | {"name": "x" * 250}, "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: the length of 'xxx"),
        (ONE | {"num_partitions": 0}, "INVALID_PARTITIONS", "Number of partitions was set to an invalid non-positive"),
        (ONE | {"replication_factor": 0}, "INVALID_REPLICATION_FACTOR", "Replication factor must be larger than 0, or"),
        (
            ONE | {"replication_factor": 5},
            "INVALID_REPLICATION_FACTOR",
            "Unable to replicate the partition 5 time(s): The target replication factor of 5 cannot be reached because",
        ),
        (assigned([1]) | ONE, "INVALID_REQUEST", "A manual partition assignment was specified, but replication factor"),
        (
            assigned([1]) | {"num_partitions": 1},
            "INVALID_REQUEST",
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            assigned([1], numbers=[1]),
            "INVALID_REPLICA_ASSIGNMENT",
            "partitions should be a consecutive 0-based integer",
        ),
        (assigned([9]), "INVALID_REPLICA_ASSIGNMENT", "The manual partition assignment includes broker 9, but no such"),
        (assigned([1, 1]), "INVALID_REPLICA_ASSIGNMENT", "The manual partition assignment includes the broker 1 more"),
        (assigned([]), "INVALID_REPLICA_ASSIGNMENT", "The manual partition assignment includes an empty replica list."),
        (
            assigned([1], [1], numbers=[0, 0]),
            "INVALID_REPLICA_ASSIGNMENT",
            "Found multiple manual partition assignments for partition 0",
        ),
        (ONE | {"configs": {"nonsense": "1"}}, "INVALID_CONFIG", "Unknown topic config name: nonsense"),
        (ONE | {"configs": {"retention.ms": "x"}}, "INVALID_CONFIG", "Invalid value x for configuration retention.ms:"),
        (
            ONE | {"configs": {"retention.ms": None}},
            "INVALID_CONFIG",
            "Null value not supported for topic configs: retention.ms",
        ),
    ],
)
def test_a_topic_is_refused_in_kafkas_words(kafka: Any, topic: dict[str, Any], error: str, words: str) -> None:
    configs = [{"name": name, "value": value} for name, value in topic.get("configs", {}).items()]
    answer = kafka.create(validate_only=True, **({"name": "never-made"} | topic | {"configs": configs}))
    assert ErrorCode(answer.error_code).name == error
    assert answer.error_message.startswith(words)


def test_a_topic_that_is_there_or_collides_is_refused_in_kafkas_words(kafka: Any) -> None:
    name = kafka.create_topic()
    assert kafka.create(validate_only=True, name=name, **ONE).error_message == f"Topic '{name}' already exists."
    dotted, folded = f"{name}.dotted", f"{name}_dotted"
    assert kafka.create(name=dotted, **ONE).error_code == ErrorCode.NONE
    answer = kafka.create(validate_only=True, name=folded, **ONE)
    assert answer.error_message.startswith(f"Topic '{folded}' collides with existing topic: {dotted}")
    body = {"topics": [{"name": folded, **ONE}] * 2, "timeout_ms": 10_000, "validate_only": True}
    assert kafka.call(ApiKey.CREATE_TOPICS, 5, body).topics[0].error_message == "Duplicate topic name."


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("retention_ms", [2**63 - 1, 2**62, -1])
def test_an_offset_may_ask_to_be_kept_for_any_time(kafka: Any, version: int, retention_ms: int) -> None:
    topic = kafka.create_topic()
    partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
    body = {
        "group_id": f"{topic}-group",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "retention_time_ms": retention_ms,
        "topics": [{"name": topic, "partitions": partitions}],
    }
    not_yet = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}
    answers = []

    def is_answered() -> bool:
        kafka.call(ApiKey.FIND_COORDINATOR, 3, {"key": body["group_id"], "key_type": 0})
        answers.append(kafka.call(ApiKey.OFFSET_COMMIT, version, body).topics[0].partitions[0].error_code)
        return answers[-1] not in not_yet

    kafka.until(is_answered, timeout_s=60)
    assert answers[-1] == ErrorCode.NONE


def test_the_values_of_a_quota_come_in_kafkas_order(kafka: Any) -> None:
    keys = ["producer_byte_rate", "request_percentage", "consumer_byte_rate"]
    entity = [{"entity_type": "client-id", "entity_name": "ordered"}]

    def change(remove: bool) -> None:
        ops = [{"key": key, "value": 1e6, "remove": remove} for key in keys]
        entries = [{"entity": entity, "ops": ops}]
        kafka.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": entries, "validate_only": False})

    def found() -> list[str]:
        component = {"entity_type": "client-id", "match_type": 0, "match": "ordered"}
        answer = kafka.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [component], "strict": True})
        return [value.key for entry in answer.entries for value in entry.values]

    change(remove=False)
    try:
        kafka.until(lambda: len(found()) == len(keys))
        assert found() == ["consumer_byte_rate", "request_percentage", "producer_byte_rate"]
    finally:
        change(remove=True)
