"""Requests that mean nothing, or the same thing twice: what is refused, and what happens all the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from wire_client import WireClient

from ottla_wire.protocol import ApiKey, ErrorCode

_numbers = count(1)
NO_ID = bytes(16)
INVALID = int(ErrorCode.INVALID_REQUEST)
UNSUPPORTED = int(ErrorCode.UNSUPPORTED_VERSION)


@pytest.fixture
def client(bootstrap_servers: str) -> Iterator[WireClient]:
    made = WireClient(bootstrap_servers, timeout_s=30)
    yield made
    made.close()


@pytest.fixture
def topic(client: WireClient) -> str:
    """A topic of three partitions, each of which has a leader."""
    name = f"odd-{next(_numbers)}"
    assert create(client, name, partitions=3) == [(name, 0)]
    wait_for(lambda: all(code == 0 for _, code, _ in listed(client, name, -1, partitions=[0, 1, 2])))
    return name


def wait_for(condition: Callable[[], bool], *, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def create(client: WireClient, name: str, *, partitions: int = 1, **configs: str) -> list[tuple[str, int]]:
    body = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }
    answer = client.call(ApiKey.CREATE_TOPICS, 7, {"topics": [body], "timeout_ms": 9000, "validate_only": False})
    return [(each.name, each.error_code) for each in answer.topics]


def topic_id(client: WireClient, name: str) -> bytes:
    body = {"topics": [{"topic_id": NO_ID, "name": name}], "allow_auto_topic_creation": False}
    return bytes(client.call(ApiKey.METADATA, 12, body).topics[0].topic_id)


def delete(client: WireClient, *topics: tuple[str | None, bytes]) -> set[tuple[str | None, int, str | None]]:
    body = {"topics": [{"name": name, "topic_id": id_} for name, id_ in topics], "timeout_ms": 9000}
    answer = client.call(ApiKey.DELETE_TOPICS, 6, body)
    return {(each.name, each.error_code, each.error_message) for each in answer.responses}


def listed(
    client: WireClient, topic: str, timestamp: int, *, version: int = 8, partitions: list[int] | None = None
) -> list[tuple[int, int, int]]:
    wanted = [{"partition_index": n, "current_leader_epoch": -1, "timestamp": timestamp} for n in partitions or [0]]
    body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": wanted}]}
    answer = client.call(ApiKey.LIST_OFFSETS, version, body)
    found = [(each.partition_index, each.error_code, each.offset) for t in answer.topics for each in t.partitions]
    return sorted(found)


@pytest.mark.parametrize(
    ("timestamp", "since"), [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, None), (-(2**63), None)]
)
def test_a_time_that_means_nothing_yet_is_refused(
    client: WireClient, topic: str, timestamp: int, since: int | None
) -> None:
    for version in (1, 6, 7, 8, 9, 10, 11):
        ((_, code, offset),) = listed(client, topic, timestamp, version=version)
        expected = 0 if since is not None and version >= since else UNSUPPORTED
        assert (version, code) == (version, expected)
        assert code == 0 or offset == -1


def test_a_partition_whose_offsets_are_asked_for_twice_is_refused_and_the_others_are_not(
    client: WireClient, topic: str
) -> None:
    assert listed(client, topic, -1, partitions=[0, 0, 1]) == [(0, INVALID, -1), (1, 0, 0)]


def test_a_topic_that_is_named_twice_is_not_deleted(client: WireClient, topic: str) -> None:
    number = topic_id(client, topic)
    assert delete(client, (topic, NO_ID), (topic, NO_ID)) == {(topic, INVALID, "Duplicate topic name.")}
    assert delete(client, (None, number), (None, number)) == {(None, INVALID, "Duplicate topic id.")}
    maps_to = "The provided topic name maps to an ID that was already supplied."
    assert delete(client, (topic, NO_ID), (None, number)) == {(topic, INVALID, maps_to)}
    both = "You may not specify both topic name and topic id."
    assert delete(client, (topic, number)) == {(topic, INVALID, both)}
    neither = "Neither topic name nor id were specified."
    assert delete(client, (None, NO_ID)) == {(None, INVALID, neither)}
    assert topic_id(client, topic) == number
    assert delete(client, (None, number)) == {(topic, 0, None)}


@pytest.mark.parametrize(
    ("name", "value", "is_taken"),
    [
        ("retention_ms", "1_000", False),
        ("retention_ms", " 1000 ", True),
        ("retention_ms", "+1000", True),
        ("retention_ms", "1e3", False),
        ("retention_ms", "1000L", False),
        ("retention_ms", "", False),
        ("retention_ms", str(2**63), False),
        ("segment_bytes", "1_048_576", False),
        ("min_cleanable_dirty_ratio", "0_1", False),
        ("min_cleanable_dirty_ratio", "0.5f", True),
        ("min_cleanable_dirty_ratio", "1e-1", True),
        ("min_cleanable_dirty_ratio", "nan", False),
        ("cleanup_policy", "compact, delete", True),
        ("cleanup_policy", "compact,,delete", False),
        ("preallocate", " TRUE ", True),
        ("preallocate", "yes", False),
    ],
)
def test_numbers_are_read_as_java_reads_them(client: WireClient, name: str, value: str, is_taken: bool) -> None:
    topic = f"odd-{next(_numbers)}"
    code = 0 if is_taken else int(ErrorCode.INVALID_CONFIG)
    assert create(client, topic, **{name: value}) == [(topic, code)]


SET, DELETE, APPEND, SUBTRACT = range(4)


def alter(client: WireClient, topic: str, name: str, operation: int, value: str | None) -> int:
    config = {"name": name, "config_operation": operation, "value": value}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [config]}
    body = {"resources": [resource], "validate_only": False}
    (answer,) = client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body).responses
    return int(answer.error_code)


def described(client: WireClient, topic: str, name: str) -> str | None:
    resource = {"resource_type": 2, "resource_name": topic, "configuration_keys": [name]}
    body = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
    ((config,),) = [each.configs for each in client.call(ApiKey.DESCRIBE_CONFIGS, 4, body).results]
    return None if config.value is None else str(config.value)


def test_a_setting_that_there_is_not_can_be_deleted_and_nothing_else(client: WireClient, topic: str) -> None:
    assert alter(client, topic, "no.such.setting", DELETE, None) == 0
    for operation in (SET, APPEND, SUBTRACT):
        assert alter(client, topic, "no.such.setting", operation, "1") == int(ErrorCode.INVALID_CONFIG)
        assert alter(client, topic, "no.such.setting", operation, None) == INVALID


def test_lists_are_changed_by_their_words_without_blanks(client: WireClient, topic: str) -> None:
    assert alter(client, topic, "cleanup.policy", SET, " compact , delete ") == 0
    assert alter(client, topic, "cleanup.policy", APPEND, "compact") == 0
    assert alter(client, topic, "cleanup.policy", SUBTRACT, " delete ") == 0
    wait_for(lambda: described(client, topic, "cleanup.policy") == "compact")


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("retention.ms", " 5000 ", "5000"),
        ("retention.ms", "+0077", "77"),
        ("cleanup.policy", " compact , delete ", "compact,delete"),
        ("preallocate", " TRUE ", "true"),
        ("min.cleanable.dirty.ratio", "25e-2f", "0.25"),
        ("compression.type", " gzip ", "gzip"),
    ],
)
def test_a_value_is_shown_as_what_it_means(client: WireClient, topic: str, name: str, value: str, shown: str) -> None:
    assert alter(client, topic, name, SET, value) == 0
    wait_for(lambda: described(client, topic, name) == shown)


def test_a_resource_that_is_changed_twice_in_one_request_is_not_changed(client: WireClient, topic: str) -> None:
    config = {"name": "retention.ms", "config_operation": SET, "value": "7"}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [config]}
    answer = client.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource, resource], "validate_only": False}
    )
    assert {(each.error_code, each.error_message) for each in answer.responses} == {
        (INVALID, "Each resource must appear at most once.")
    }


def test_offsets_may_be_committed_for_the_group_without_a_name(client: WireClient, topic: str) -> None:
    partition = {"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": -1, "committed_metadata": ""}
    body: dict[str, Any] = {
        "group_id": "",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": [partition]}],
    }
    client.call(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [""]})
    wait_for(lambda: client.call(ApiKey.OFFSET_COMMIT, 8, body).topics[0].partitions[0].error_code == 0)
    wanted = {"groups": [{"group_id": "", "topics": [{"name": topic, "partition_indexes": [0]}]}]}
    (group,) = client.call(ApiKey.OFFSET_FETCH, 8, {**wanted, "require_stable": False}).groups
    assert group.topics[0].partitions[0].committed_offset == 3
    described = client.call(ApiKey.DESCRIBE_GROUPS, 5, {"groups": [""], "include_authorized_operations": False})
    assert [(each.error_code, each.group_state) for each in described.groups] == [(0, "Empty")]
    beat = {"group_id": "", "generation_id": 1, "member_id": "x", "group_instance_id": None}
    assert client.call(ApiKey.HEARTBEAT, 4, beat).error_code == int(ErrorCode.INVALID_GROUP_ID)
    assert [each.error_code for each in client.call(ApiKey.DELETE_GROUPS, 2, {"groups_names": [""]}).results] == [0]


def test_partitions_of_a_new_topic_are_spread_over_the_brokers_whoever_leads_most(three_brokers: str) -> None:
    client = WireClient(three_brokers, timeout_s=30)
    for _ in range(5):  # the leaders of these are on any brokers
        create(client, f"odd-{next(_numbers)}")
    name = f"odd-{next(_numbers)}"
    assert create(client, name, partitions=6) == [(name, 0)]
    body = {"topics": [{"topic_id": NO_ID, "name": name}], "allow_auto_topic_creation": False}
    wait_for(lambda: len(client.call(ApiKey.METADATA, 12, body).topics[0].partitions) == 6)
    leaders = {
        each.partition_index: each.replica_nodes[0]
        for each in client.call(ApiKey.METADATA, 12, body).topics[0].partitions
    }
    client.close()
    assert {leaders[0], leaders[1], leaders[2]} == {leaders[3], leaders[4], leaders[5]} == {1, 2, 3}
