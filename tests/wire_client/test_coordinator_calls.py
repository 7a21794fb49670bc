"""A coordinator is looked for once, and again when it has moved or is gone. A dead connection is no answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from scripted_broker import Answer, HangUp, Healthy, ScriptedBroker

from ottla.records import TopicPartition
from ottla.wire_client import Cluster, wire_settings
from ottla.wire_client.cluster.topic_limits import max_message_bytes
from ottla.wire_client.group.group_offsets import committed_offsets
from ottla_wire.protocol import ApiKey, ErrorCode

PLACE = TopicPartition("orders", 0)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    made = ScriptedBroker()
    made.add_topic("orders")
    made.committed["orders", 0] = 7
    yield made
    made.close()


@pytest.fixture
def cluster(broker: ScriptedBroker) -> Iterator[Cluster]:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 1}
    with Cluster(wire_settings(settings)) as made:
        yield made


def committed(cluster: Cluster) -> int:
    return committed_offsets(cluster, "report", [PLACE])[PLACE][0]


def test_it_is_asked_again_without_a_search(broker: ScriptedBroker, cluster: Cluster) -> None:
    assert [committed(cluster) for _ in range(3)] == [7, 7, 7]
    assert broker.count(ApiKey.FIND_COORDINATOR) == 1


def test_one_that_has_moved_is_found_again(broker: ScriptedBroker, cluster: Cluster) -> None:
    def moved(request: Any, healthy: Healthy) -> Answer:
        return healthy(request) | {"error_code": ErrorCode.NOT_COORDINATOR}

    committed(cluster)
    broker.script[ApiKey.OFFSET_FETCH].append(moved)
    assert committed(cluster) == 7
    assert broker.count(ApiKey.FIND_COORDINATOR) == 2


def test_one_whose_connection_is_lost_is_found_again(broker: ScriptedBroker, cluster: Cluster) -> None:
    def hangs_up(request: Any, healthy: Healthy) -> Answer | None:
        raise HangUp

    committed(cluster)
    broker.script[ApiKey.OFFSET_FETCH].append(hangs_up)
    assert committed(cluster) == 7
    assert broker.count(ApiKey.FIND_COORDINATOR) == 2


def test_the_limit_of_a_topic_is_asked_for_again_when_the_connection_is_dead(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    def hangs_up(request: Any, healthy: Healthy) -> Answer | None:
        raise HangUp

    broker.script[ApiKey.DESCRIBE_CONFIGS].append(hangs_up)
    size, setting = max_message_bytes(cluster, "orders")
    assert size > 0
    assert "max" in setting
    assert broker.count(ApiKey.DESCRIBE_CONFIGS) == 2
