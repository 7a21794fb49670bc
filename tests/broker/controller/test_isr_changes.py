"""AlterPartition through the wire: what a leader may ask for, and what it is told."""

from __future__ import annotations

from typing import Any

import pytest

from broker_embedded.metadata.image import PartitionImage
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message


def ask(world: Any, isr: list[int], *, leader: int = 1, epochs: dict[int, int] | None = None, **other: int) -> Message:
    """An AlterPartition of "t"'s leader, as far as `other` does not say otherwise."""
    image = world.active.controller.image
    state: PartitionImage = image.topics["t"].partitions[0]
    known = {node: broker.epoch for node, broker in image.brokers.items()} | (epochs or {})
    members = [{"broker_id": node, "broker_epoch": known[node]} for node in isr]
    partition = {
        "partition_index": 0,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "new_isr_with_epochs": members,
        "leader_recovery_state": 0,
    } | other
    body = {
        "broker_id": leader,
        "broker_epoch": image.brokers[leader].epoch,
        "topics": [{"topic_id": image.topics["t"].topic_id, "partitions": [partition]}],
    }
    answer = world.run(world.nodes[leader].channel.send(ApiKey.ALTER_PARTITION, 3, body, timeout_ms=2_000))
    assert answer.error_code == 0
    return answer.topics[0].partitions[0]


@pytest.fixture
def world(make_world: Any) -> Any:
    world = make_world()
    world.create_topic("t", [1, 2, 3])
    return world


def test_an_isr_shrinks_and_grows_and_only_the_partition_epoch_moves(world: Any) -> None:
    shrunk = ask(world, [1, 2])
    assert (shrunk.error_code, shrunk.isr, shrunk.leader_id) == (0, [1, 2], 1)
    assert (shrunk.leader_epoch, shrunk.partition_epoch) == (0, 1)
    grown = ask(world, [1, 2, 3])
    assert (grown.isr, grown.leader_epoch, grown.partition_epoch) == ([1, 2, 3], 0, 2)
    assert world.partition("t").isr == (1, 2, 3)


def test_the_same_isr_again_changes_nothing(world: Any) -> None:
    answer = ask(world, [1, 2, 3])
    assert (answer.error_code, answer.partition_epoch) == (0, 0)


@pytest.mark.parametrize(
    ("isr", "other", "error"),
    [
        ([2, 3], {}, ErrorCode.INVALID_REQUEST),
        ([], {}, ErrorCode.INVALID_REQUEST),
        ([1, 1], {}, ErrorCode.INVALID_REQUEST),
        ([1, 4], {}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"leader": 2}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ([1, 2], {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ([1], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"partition_index": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_does_not_fit_what_is_committed_is_refused(
    world: Any, isr: list[int], other: dict[str, int], error: ErrorCode
) -> None:
    before = world.partition("t")
    assert ask(world, isr, epochs={4: 1}, **other).error_code == error
    assert world.partition("t") == before


def test_a_leader_that_knows_more_than_the_controller_asks_for_another_controller(world: Any) -> None:
    image = world.active.controller.image
    topic_id = image.topics["t"].topic_id
    partition = {"partition_index": 0, "leader_epoch": 5, "partition_epoch": 0, "new_isr_with_epochs": []}
    body = {
        "broker_id": 1,
        "broker_epoch": image.brokers[1].epoch,
        "topics": [{"topic_id": topic_id, "partitions": [partition]}],
    }
    answer = world.call(1, ApiKey.ALTER_PARTITION, 3, body)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_CONTROLLER


def test_a_replica_of_another_incarnation_or_on_its_way_out_may_not_join(world: Any) -> None:
    ask(world, [1])
    assert ask(world, [1, 2], epochs={2: 0}).error_code == ErrorCode.INELIGIBLE_REPLICA
    world.nodes[3].kill()
    world.until(lambda: world.active.controller.image.brokers[3].fenced)
    assert ask(world, [1, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert ask(world, [1, 2], epochs={2: -1}).error_code == 0  # an older leader does not know epochs


def test_an_old_incarnation_of_the_leader_is_refused_as_a_whole(world: Any) -> None:
    body = {"broker_id": 1, "broker_epoch": 0, "topics": []}
    assert world.call(1, ApiKey.ALTER_PARTITION, 3, body).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_version_2_names_members_without_epochs(world: Any) -> None:
    image = world.active.controller.image
    partition = {"partition_index": 0, "leader_epoch": 0, "partition_epoch": 0, "new_isr": [1, 3]}
    body = {
        "broker_id": 1,
        "broker_epoch": image.brokers[1].epoch,
        "topics": [
            {"topic_id": image.topics["t"].topic_id, "partitions": [partition]},
            {"topic_id": bytes(16), "partitions": [partition]},
        ],
    }
    known, unknown = world.call(1, ApiKey.ALTER_PARTITION, 2, body).topics
    assert (known.partitions[0].error_code, known.partitions[0].isr) == (0, [1, 3])
    assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_leader_elected_uncleanly_recovers_before_anybody_joins(world: Any) -> None:
    ask(world, [1])
    world.nodes[1].kill()
    world.log.lead(2)
    world.until(lambda: world.partition("t").leader == -1)
    elected = world.call(2, ApiKey.ELECT_LEADERS, 2, {"election_type": 1, "topic_partitions": None})
    assert [each.topic for each in elected.replica_election_results] == ["t"]
    assert (world.partition("t").leader, int(world.partition("t").leader_recovery_state)) == (2, 1)
    assert ask(world, [2, 3], leader=2, leader_recovery_state=1).error_code == ErrorCode.INVALID_REQUEST
    recovered = ask(world, [2, 3], leader=2, leader_recovery_state=0)
    assert (recovered.error_code, recovered.leader_recovery_state, recovered.isr) == (0, 0, [2, 3])
