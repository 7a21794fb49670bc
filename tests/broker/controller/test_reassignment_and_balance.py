"""Replicas move from broker to broker, and leaders back to where they belong: through the wire, in simulated time."""

from __future__ import annotations

from typing import Any

import pytest

from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message


def move(world: Any, replicas: list[int] | None, *, partition: int = 0, version: int = 1, **other: Any) -> Message:
    body = {
        "topics": [{"name": "t", "partitions": [{"partition_index": partition, "replicas": replicas}]}],
        "timeout_ms": 5_000,
    } | other
    answer = world.call(2, ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, body)
    assert answer.error_code == 0
    return answer.responses[0].partitions[0]


def moves(world: Any, body: dict[str, Any] | None = None) -> list[tuple[str, int, list[int], list[int], list[int]]]:
    answer = world.call(3, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, body or {"topics": None})
    return [
        (topic.name, each.partition_index, each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in answer.topics
        for each in topic.partitions
    ]


def report_isr(world: Any, isr: list[int]) -> int:
    """The leader's AlterPartition; its error code."""
    image = world.active.controller.image
    state = image.topics["t"].partitions[0]
    partition = {
        "partition_index": 0,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "new_isr_with_epochs": [{"broker_id": node, "broker_epoch": -1} for node in isr],
    }
    body = {
        "broker_id": state.leader,
        "broker_epoch": image.brokers[state.leader].epoch,
        "topics": [{"topic_id": image.topics["t"].topic_id, "partitions": [partition]}],
    }
    answer = world.call(state.leader, ApiKey.ALTER_PARTITION, 3, body)
    return int(answer.topics[0].partitions[0].error_code)


@pytest.fixture
def world(make_world: Any) -> Any:
    world = make_world(5)
    world.create_topic("t", [1, 2])
    return world


def test_a_move_lasts_until_the_added_replicas_are_in_sync_and_then_takes_the_leader_away(world: Any) -> None:
    assert move(world, [3, 4]).error_code == 0
    assert moves(world) == [("t", 0, [3, 4, 1, 2], [3, 4], [1, 2])]
    assert world.partition("t").leader == 1
    assert report_isr(world, [1, 2, 3]) == 0
    assert moves(world) != []
    assert report_isr(world, [1, 2, 3, 4]) == ErrorCode.NEW_LEADER_ELECTED
    state = world.partition("t")
    assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((3, 4), (3, 4), 3, 1)
    assert moves(world) == []


def test_a_move_is_replaced_by_another(world: Any) -> None:
    move(world, [3, 4])
    report_isr(world, [1, 2, 3])
    move(world, [2, 4])
    assert moves(world) == [("t", 0, [2, 4, 3, 1], [4], [3, 1])]
    assert report_isr(world, [1, 2, 3, 4]) == ErrorCode.NEW_LEADER_ELECTED
    assert (world.partition("t").replicas, world.partition("t").leader) == ((2, 4), 2)


def test_a_cancelled_move_leaves_the_partition_where_it_was(world: Any) -> None:
    move(world, [3, 1])
    report_isr(world, [1, 2])
    assert move(world, None).error_code == 0
    state = world.partition("t")
    assert (sorted(state.replicas), state.leader, moves(world)) == ([1, 2], 1, [])
    assert move(world, None).error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_move_is_not_cancelled_when_only_added_replicas_are_in_sync(world: Any) -> None:
    move(world, [3, 4])
    report_isr(world, [1, 3])
    for node in (1, 2):
        world.nodes[node].kill()
    world.log.lead(5)
    world.until(lambda: world.partition("t").leader == 3)
    refused = world.call(
        3,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "replicas": None}]}], "timeout_ms": 5_000},
    )
    assert refused.responses[0].partitions[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert world.partition("t").leader == 3


def test_to_drop_a_replica_needs_no_waiting(world: Any) -> None:
    assert move(world, [2]).error_code == 0
    state = world.partition("t")
    assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((2,), (2,), 2, 1)


@pytest.mark.parametrize(
    ("replicas", "other", "error"),
    [
        ([], {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([3, 3], {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([3, 9], {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([3, 4], {"partition": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([3, 4, 5], {"allow_replication_factor_change": False}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ([3, 4], {"allow_replication_factor_change": False}, ErrorCode.NONE),
    ],
)
def test_a_move_to_where_nobody_can_be_is_refused(
    world: Any, replicas: list[int], other: dict[str, Any], error: ErrorCode
) -> None:
    assert move(world, replicas, **other).error_code == error


def test_moves_are_listed_by_name(world: Any) -> None:
    move(world, [3, 4])
    assert len(moves(world, {"topics": [{"name": "t", "partition_indexes": [0, 5]}]})) == 1
    assert moves(world, {"topics": [{"name": "t", "partition_indexes": [1]}]}) == []
    assert moves(world, {"topics": [{"name": "other", "partition_indexes": [0]}]}) == []


def test_a_topic_that_grows_in_the_middle_of_a_move_keeps_its_replication_factor(world: Any) -> None:
    move(world, [3, 4])
    body = {"topics": [{"name": "t", "count": 2, "assignments": None}], "timeout_ms": 5_000}
    assert world.call(3, ApiKey.CREATE_PARTITIONS, 3, body).results[0].error_code == 0
    assert len(world.active.controller.image.topics["t"].partitions[1].replicas) == 2


# --- preferred leaders


def return_after_death(world: Any, node: int) -> None:
    world.nodes[node].kill()
    world.until(lambda: world.active.controller.image.brokers[node].fenced)
    world.add(node)
    world.start(node)


def join_isr(world: Any, *isr: int) -> None:
    assert report_isr(world, list(isr)) == 0


def test_an_asked_for_election_gives_leadership_back_to_the_preferred_replica(make_world: Any) -> None:
    world = make_world()
    world.create_topic("t", [3, 2])
    return_after_death(world, 3)
    assert world.partition("t").leader == 2
    asked = {"election_type": 0, "topic_partitions": [{"topic": "t", "partitions": [0, 9]}], "timeout_ms": 5_000}

    def outcome() -> dict[int, int]:
        answer = world.call(1, ApiKey.ELECT_LEADERS, 2, asked)
        return {each.partition_id: each.error_code for each in answer.replica_election_results[0].partition_result}

    assert outcome() == {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    join_isr(world, 2, 3)
    assert outcome()[0] == 0
    assert world.partition("t").leader == 3
    assert outcome()[0] == ErrorCode.ELECTION_NOT_NEEDED
    everything = world.call(1, ApiKey.ELECT_LEADERS, 2, {"election_type": 0, "topic_partitions": None})
    assert everything.replica_election_results == []
    assert world.call(1, ApiKey.ELECT_LEADERS, 2, {"election_type": 5}).error_code == ErrorCode.INVALID_REQUEST
    unclean = {"election_type": 1, "topic_partitions": [{"topic": "t", "partitions": [0]}]}
    answer = world.call(1, ApiKey.ELECT_LEADERS, 1, unclean)
    assert answer.replica_election_results[0].partition_result[0].error_code == ErrorCode.ELECTION_NOT_NEEDED


def test_leadership_returns_by_itself_at_the_next_balancing(make_world: Any) -> None:
    world = make_world(leader_imbalance_check_interval_seconds=30)
    world.create_topic("t", [3, 2])
    return_after_death(world, 3)
    join_isr(world, 2, 3)
    world.sleep(5)
    assert world.partition("t").leader == 2
    world.until(lambda: world.partition("t").leader == 3, seconds=40)


def test_balancing_can_be_switched_off(make_world: Any) -> None:
    world = make_world(leader_imbalance_check_interval_seconds=5, auto_leader_rebalance_enable="false")
    world.create_topic("t", [3, 2])
    return_after_death(world, 3)
    join_isr(world, 2, 3)
    world.sleep(60)
    assert world.partition("t").leader == 2


def test_a_broker_that_lacks_few_of_its_leaderships_is_left_alone(make_world: Any) -> None:
    world = make_world(leader_imbalance_check_interval_seconds=5, leader_imbalance_per_broker_percentage=50)
    world.create_topic("t", [3, 2])
    return_after_death(world, 3)
    world.create_topic("u", [3, 2])
    join_isr(world, 2, 3)
    world.sleep(60)
    assert world.partition("t").leader == 2  # one of two: 50 %, which is allowed
    world.create_topic("v", [3, 2])
    assert world.partition("v").leader == 3


# --- unclean elections by setting


def alone_in_sync_and_dead(world: Any) -> None:
    join_isr(world, 3)
    world.nodes[3].kill()
    world.until(lambda: world.active.controller.image.brokers[3].fenced)


def test_without_leave_nobody_out_of_sync_leads(make_world: Any) -> None:
    world = make_world()
    world.create_topic("t", [3, 2])
    alone_in_sync_and_dead(world)
    world.sleep(60)
    assert (world.partition("t").leader, world.partition("t").isr) == (-1, (3,))
    (topic,) = world.call(2, ApiKey.METADATA, 12, {"topics": [{"name": "t"}]}).topics
    (state,) = topic.partitions
    assert (state.error_code, state.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert list(state.offline_replicas) == [3]


def test_a_topic_may_prefer_to_be_available(make_world: Any) -> None:
    world = make_world()
    world.create_topic("t", [3, 2], configs={"unclean.leader.election.enable": "true"})
    alone_in_sync_and_dead(world)
    assert (world.partition("t").leader, world.partition("t").isr) == (2, (2,))


@pytest.mark.parametrize(("resource_type", "name"), [(2, "t"), (4, "")])
def test_leave_given_later_helps_at_once(make_world: Any, resource_type: int, name: str) -> None:
    world = make_world()
    world.create_topic("t", [3, 2])
    alone_in_sync_and_dead(world)
    change = {"name": "unclean.leader.election.enable", "config_operation": 0, "value": "true"}
    resource = {"resource_type": resource_type, "resource_name": name, "configs": [change]}
    answer = world.call(2, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
    assert answer.responses[0].error_code == 0
    assert world.partition("t").leader == 2


def test_the_brokers_default_may_prefer_to_be_available(make_world: Any) -> None:
    world = make_world(unclean_leader_election_enable="true")
    world.create_topic("t", [3, 2])
    world.create_topic("safe", [3, 2], configs={"unclean.leader.election.enable": "false"})
    join_isr(world, 3)
    world.nodes[3].kill()
    world.until(lambda: world.partition("t").leader == 2)
    assert world.partition("safe").leader == 2  # in sync all the time
