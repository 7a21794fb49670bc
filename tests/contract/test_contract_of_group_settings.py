"""Settings of a group: which there are, where values come from, what is refused, and when members hear of a change."""

from __future__ import annotations

import os
from itertools import count
from typing import Any

import pytest
from apache_kafka import wanted

from ottla_wire.protocol import ApiKey, ErrorCode

GROUP = 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
OF_THE_GROUP, DEFAULT = 8, 5
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
_numbers = count(1)

DEFAULTS = {
    "consumer.heartbeat.interval.ms": "5000",
    "consumer.session.timeout.ms": "45000",
    "share.auto.offset.reset": "latest",
    "share.heartbeat.interval.ms": "5000",
    "share.isolation.level": "read_uncommitted",
    "share.record.lock.duration.ms": "30000",
    "share.session.timeout.ms": "45000",
    "streams.heartbeat.interval.ms": "5000",
    "streams.num.standby.replicas": "0",
    "streams.session.timeout.ms": "45000",
}
SINCE_4_4 = {
    "consumer.assignment.interval.ms": "0",
    "errors.deadletterqueue.copy.record.enable": "false",
    "errors.deadletterqueue.topic.name": "",
    "share.assignment.interval.ms": "0",
    "share.delivery.count.limit": "5",
    "share.partition.max.record.locks": "2000",
    "share.renew.acknowledge.enable": "true",
    "streams.assignment.interval.ms": "1000",
    "streams.assignor.name": "sticky",
    "streams.initial.rebalance.delay.ms": "3000",
    "streams.rack.aware.assignment.tags": "",
}
HIDDEN_SINCE_4_4 = {
    "consumer.assignor.offload.enable",
    "share.assignor.offload.enable",
    "streams.acceptable.recovery.lag",
    "streams.assignor.offload.enable",
    "streams.num.warmup.replicas",
    "streams.task.offset.interval.ms",
}

BOUNDS = [
    # name, taken, refused
    (SESSION, ["45000", "60000"], ["44999", "60001", "0", "x", ""]),
    (HEARTBEAT, ["5000", "15000"], ["4999", "15001"]),
    ("consumer.assignment.interval.ms", ["0", "15000"], ["-1", "15001"]),
    ("consumer.assignor.offload.enable", ["true", "false"], ["x"]),
    ("errors.deadletterqueue.copy.record.enable", ["true"], ["x"]),
    ("errors.deadletterqueue.topic.name", ["x", ""], ["__x"]),
    ("share.assignment.interval.ms", ["15000"], ["15001"]),
    (
        "share.auto.offset.reset",
        ["earliest", "by_duration:PT1H", "by_duration:P1DT2.5S"],
        ["none", "by_duration:", "by_duration:P", "by_duration:-PT1H", "by_duration:1h"],
    ),
    ("share.delivery.count.limit", ["2", "10"], ["1", "11"]),
    ("share.heartbeat.interval.ms", ["5000"], ["4999", "15001"]),
    ("share.isolation.level", ["read_committed"], ["READ_COMMITTED"]),
    ("share.partition.max.record.locks", ["100", "4000"], ["99", "4001"]),
    ("share.record.lock.duration.ms", ["15000", "60000"], ["999", "14999", "60001"]),
    ("share.renew.acknowledge.enable", ["false"], ["x"]),
    ("share.session.timeout.ms", ["60000"], ["44999", "60001"]),
    ("streams.acceptable.recovery.lag", ["0"], ["-1"]),
    ("streams.assignment.interval.ms", ["0"], ["15001"]),
    ("streams.assignor.name", ["sticky"], ["x", ""]),
    ("streams.heartbeat.interval.ms", ["15000"], ["4999", "15001"]),
    ("streams.initial.rebalance.delay.ms", ["0", "100000"], ["-1"]),
    ("streams.num.standby.replicas", ["0", "2"], ["-1", "3"]),
    ("streams.num.warmup.replicas", ["0", "20"], ["-1", "21"]),
    ("streams.rack.aware.assignment.tags", ["a", "a,b"], ["a,a"]),
    ("streams.session.timeout.ms", ["45000"], ["44999", "60001"]),
    ("streams.task.offset.interval.ms", ["15000", "60000"], ["0", "14999"]),
]


def is_older_than_4_4() -> bool:
    version = wanted()
    return version is not None and version < "4.4"


@pytest.fixture
def group() -> str:
    return f"group-settings-{os.getpid()}-{next(_numbers)}"


def alter(
    kafka: Any, group: str, name: str, value: str | None, *, operation: int = SET, only_check: bool = False
) -> Any:
    configs = [{"name": name, "config_operation": operation, "value": value}]
    resource = {"resource_type": GROUP, "resource_name": group, "configs": configs}
    body = {"resources": [resource], "validate_only": only_check}
    return kafka.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body).responses[0]


def describe(kafka: Any, group: str, keys: list[str] | None = None) -> Any:
    resource = {"resource_type": GROUP, "resource_name": group, "configuration_keys": keys}
    return kafka.call(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource], "include_synonyms": True}).results[0]


def described(kafka: Any, group: str, name: str) -> tuple[str, int]:
    (config,) = describe(kafka, group, [name]).configs
    assert not config.read_only
    assert not config.is_sensitive
    return config.value, config.config_source


def test_a_group_that_nobody_has_seen_has_kafkas_settings_and_defaults(kafka: Any, group: str) -> None:
    answer = describe(kafka, group)
    assert answer.error_code == 0
    wanted_here = DEFAULTS if is_older_than_4_4() else DEFAULTS | SINCE_4_4
    assert {each.name: each.value for each in answer.configs} == wanted_here


def test_what_is_set_for_a_group_is_its_own_until_it_is_deleted(kafka: Any, group: str) -> None:
    assert described(kafka, group, SESSION) == ("45000", DEFAULT)
    assert alter(kafka, group, SESSION, "50000").error_code == 0
    kafka.until(lambda: described(kafka, group, SESSION) == ("50000", OF_THE_GROUP))
    assert described(kafka, f"{group}-2", SESSION) == ("45000", DEFAULT)
    assert alter(kafka, group, SESSION, None, operation=DELETE).error_code == 0
    kafka.until(lambda: described(kafka, group, SESSION) == ("45000", DEFAULT))


def test_a_setting_that_is_not_set_has_the_brokers_as_its_synonym(kafka: Any, group: str) -> None:
    if is_older_than_4_4():
        pytest.skip("before 4.4 its only synonym is itself")
    assert alter(kafka, group, SESSION, "50000").error_code == 0

    def synonyms() -> list[tuple[str, str, int]]:
        (config,) = describe(kafka, group, [SESSION]).configs
        return [(each.name, each.value, each.source) for each in config.synonyms]

    inherited = ("group.consumer.session.timeout.ms", "45000", DEFAULT)
    kafka.until(lambda: synonyms() == [(SESSION, "50000", OF_THE_GROUP), inherited])


def test_a_setting_that_is_hidden_is_described_when_it_is_set(kafka: Any, group: str) -> None:
    if is_older_than_4_4():
        pytest.skip("there are none before 4.4")
    name = "streams.num.warmup.replicas"
    assert name not in {each.name for each in describe(kafka, group).configs}
    assert alter(kafka, group, name, "3").error_code == 0
    kafka.until(lambda: [each.value for each in describe(kafka, group).configs if each.name == name] == ["3"])


@pytest.mark.parametrize(("name", "taken", "refused"), BOUNDS, ids=[name for name, *_ in BOUNDS])
def test_a_value_is_taken_or_refused_as_by_kafka(
    kafka: Any, group: str, name: str, taken: list[str], refused: list[str]
) -> None:
    if is_older_than_4_4() and name not in DEFAULTS:
        pytest.skip(f"Apache Kafka {wanted()} does not have {name}")

    def error_of(value: str) -> int:
        return int(alter(kafka, group, name, value, only_check=True).error_code)

    assert {value: error_of(value) for value in taken} == dict.fromkeys(taken, 0)
    assert {value: error_of(value) for value in refused} == dict.fromkeys(refused, ErrorCode.INVALID_CONFIG)


@pytest.mark.parametrize(("operation", "word"), [(APPEND, "APPEND"), (SUBTRACT, "SUBTRACT")])
def test_no_setting_of_a_group_is_a_list_that_can_be_added_to(
    kafka: Any, group: str, operation: int, word: str
) -> None:
    name = SESSION if is_older_than_4_4() else "streams.rack.aware.assignment.tags"
    refused = alter(kafka, group, name, "zone", operation=operation)
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert refused.error_message == f"Can't {word} to key {name} because its type is not LIST."


def test_what_no_group_can_have_is_refused(kafka: Any, group: str) -> None:
    unknown = alter(kafka, group, "nonsense", "1")
    assert (unknown.error_code, unknown.error_message) == (
        ErrorCode.INVALID_CONFIG,
        "Unknown group config name: nonsense",
    )
    assert alter(kafka, group, "nonsense", None, operation=DELETE).error_code == 0, "it is not there, as was asked for"
    assert alter(kafka, group, SESSION, None).error_code == ErrorCode.INVALID_REQUEST
    assert alter(kafka, group, SESSION, "1", operation=APPEND).error_code == ErrorCode.INVALID_CONFIG
    nameless = alter(kafka, "", SESSION, "50000")
    assert (nameless.error_code, nameless.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Default group resources are not allowed.",
    )
    nameless = describe(kafka, "")
    assert (nameless.error_code, nameless.error_message) == (ErrorCode.INVALID_REQUEST, "Group name must not be empty")


def test_a_value_out_of_bounds_is_told_with_the_bounds(kafka: Any, group: str) -> None:
    if is_older_than_4_4():
        pytest.skip("4.1 names the broker's setting")
    refused = alter(kafka, group, SESSION, "44999").error_message
    assert refused == "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive."
    refused = alter(kafka, group, "streams.num.standby.replicas", "3").error_message
    assert refused == "streams.num.standby.replicas must be less than or equal to 2"


def test_groups_with_settings_are_listed(kafka: Any, group: str) -> None:
    def listed() -> set[str]:
        answer = kafka.call(ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": [GROUP]})
        assert {each.resource_type for each in answer.config_resources} <= {GROUP}
        return {each.resource_name for each in answer.config_resources}

    assert group not in listed()
    assert alter(kafka, group, SESSION, "50000").error_code == 0
    kafka.until(lambda: group in listed())


def test_a_member_is_told_its_groups_heartbeat_interval_with_its_next_heartbeat(kafka: Any, group: str) -> None:
    topic = kafka.create_topic()
    joining = {
        "group_id": group,
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    }
    coordinator = {"key_type": 0, "coordinator_keys": [group]}
    kafka.until(lambda: kafka.call(ApiKey.FIND_COORDINATOR, 4, coordinator).coordinators[0].error_code == 0)
    kafka.until(lambda: kafka.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joining).error_code == 0)
    joined = kafka.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joining)
    assert joined.heartbeat_interval_ms == 5_000

    def interval() -> int:
        body = {"group_id": group, "member_id": "m", "member_epoch": joined.member_epoch}
        answer = kafka.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, body)
        assert answer.error_code == 0, answer.error_message
        return int(answer.heartbeat_interval_ms)

    assert alter(kafka, group, HEARTBEAT, "7000").error_code == 0
    kafka.until(lambda: interval() == 7_000)
    assert alter(kafka, group, HEARTBEAT, None, operation=DELETE).error_code == 0
    kafka.until(lambda: interval() == 5_000)
    kafka.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {"group_id": group, "member_id": "m", "member_epoch": -1})
