"""Settings of one group count for that group alone, from its members' next heartbeat on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.config_definition import InvalidConfig
from broker_embedded.common.group_bounds import check_group_settings, group_settings
from broker_embedded.metadata.records import ResourceType
from ottla_wire.protocol import ApiKey

SESSION, HEARTBEAT, ASSIGNMENT = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)


def set_of_group(shard: Any, group: str, **settings: Any) -> None:
    texts = {name.replace("_", "."): str(value) for name, value in settings.items()}
    shard.image = replace(shard.image, configs={**shard.image.configs, (ResourceType.GROUP, group): texts})


def members(shard: Any) -> set[str]:
    return set(shard.shard.consumer.get("g").members)


def test_a_session_of_its_own_counts_from_the_next_heartbeat(shard: Any) -> None:
    shard.set_topics(t=1)
    epoch = shard.enter("a").member_epoch
    set_of_group(shard, "g", consumer_session_timeout_ms=60_000)
    shard.pass_ms(1_000)
    shard.beat("a", epoch)
    shard.pass_ms(59_999)
    assert members(shard) == {"a"}, "the broker's session is over, its own is not"
    shard.pass_ms(1)
    assert not members(shard)


def test_a_session_of_its_own_counts_after_a_replay(shard: Any) -> None:
    shard.set_topics(t=1)
    shard.enter("a")
    other = shard.restart()
    set_of_group(other, "g", consumer_session_timeout_ms=60_000)
    other.shard.on_loaded()
    other.pass_ms(59_999)
    assert members(other) == {"a"}


def test_the_settings_of_another_group_change_nothing(shard: Any) -> None:
    shard.set_topics(t=1)
    set_of_group(shard, "another", consumer_heartbeat_interval_ms=7_000)
    assert shard.enter("a").heartbeat_interval_ms == 5_000
    set_of_group(shard, "g", consumer_heartbeat_interval_ms=6_000)
    assert shard.beat("a", 1).heartbeat_interval_ms == 6_000


def test_assignments_wait_for_the_interval_after_the_last_one(shard: Any) -> None:
    shard.set_topics(t=2)
    set_of_group(shard, "g", consumer_assignment_interval_ms=1_000)
    first = shard.enter("a")
    assert shard.named(first.assignment) == {"t": [0, 1]}, "the first is computed at once"
    second = shard.enter("b")
    assert shard.named(second.assignment) == {}
    assert shard.beat("a", first.member_epoch).assignment is None
    shard.pass_ms(999)
    assert shard.beat("a", first.member_epoch).assignment is None
    shard.pass_ms(1)
    told = shard.beat("a", first.member_epoch)
    assert shard.named(told.assignment) == {"t": [0]} or shard.named(told.assignment) == {"t": [1]}


def test_one_assignment_is_computed_for_all_that_join_within_the_interval(shard: Any) -> None:
    shard.set_topics(t=4)
    set_of_group(shard, "g", consumer_assignment_interval_ms=1_000)
    first = shard.enter("a")
    for name in "bcd":
        shard.enter(name)
    shard.pass_ms(1_000)
    before = shard.shard.consumer.get("g").assignment_epoch
    shard.beat("a", first.member_epoch)
    assert shard.shard.consumer.get("g").assignment_epoch == before + 3
    assert {len(target) for target in shard.shard.consumer.get("g").targets.values()} == {1}


def test_what_lies_outside_of_narrower_bounds_counts_as_the_bound() -> None:
    broker = BrokerConfig(group_consumer_max_session_timeout_ms=50_000)
    assert group_settings(broker, {SESSION: "60000"}).consumer_session_timeout_ms == 50_000
    with pytest.raises(InvalidConfig):
        check_group_settings(broker, {SESSION: "60000"})


def test_a_heartbeat_as_long_as_the_session_is_refused() -> None:
    broker = BrokerConfig(group_consumer_min_session_timeout_ms=1_000)
    check_group_settings(broker, {SESSION: "6000"})
    with pytest.raises(InvalidConfig) as refused:
        check_group_settings(broker, {SESSION: "6000", HEARTBEAT: "6000"})
    assert refused.value.told() == f"{SESSION} must be greater than {HEARTBEAT}"


def test_settings_of_a_group_outlive_a_restart(tmp_path: Any) -> None:
    configs = [{"name": HEARTBEAT, "config_operation": 0, "value": "7000"}]
    resource = {"resource_type": ResourceType.GROUP, "resource_name": "g"}
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        client = WireClient(cluster.bootstrap_servers)
        body = {"resources": [{**resource, "configs": configs}]}
        assert client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body).responses[0].error_code == 0
        client.close()
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        client = WireClient(cluster.bootstrap_servers)
        asked = {"resources": [{**resource, "configuration_keys": [HEARTBEAT]}]}
        (answer,) = client.call(ApiKey.DESCRIBE_CONFIGS, 4, asked).results
        client.close()
        assert [each.value for each in answer.configs] == ["7000"]
