"""Admin requests to any node: passed on, answered, and held while the controller moves."""

from __future__ import annotations

from typing import Any

import pytest

from broker_embedded.common.peers import PeerUnavailable
from broker_embedded.controller.controller import PARTITIONS_AT_ONCE
from broker_embedded.server.apis import create_topics as create_topics
from broker_embedded.server.requests import forwarding
from ottla_wire.protocol import ApiKey, ErrorCode, codec

NEW_TOPIC = {"topics": [{"name": "t", "num_partitions": 2, "replication_factor": 3}], "timeout_ms": 30_000}


@pytest.mark.parametrize("node", [1, 2, 3])
def test_a_topic_is_created_whichever_node_is_asked(make_world: Any, node: int) -> None:
    world = make_world()
    (topic,) = world.call(node, ApiKey.CREATE_TOPICS, 7, NEW_TOPIC).topics
    assert (topic.error_code, topic.num_partitions, topic.replication_factor) == (0, 2, 3)
    states = world.active.controller.image.topics["t"].partitions.values()
    assert {state.leader for state in states} <= {1, 2, 3}
    assert all(sorted(state.isr) == [1, 2, 3] for state in states)
    doomed = {"topics": [{"name": "t"}], "timeout_ms": 30_000}
    (deleted,) = world.call(node, ApiKey.DELETE_TOPICS, 6, doomed).responses
    assert (deleted.error_code, deleted.name) == (0, "t")
    assert world.active.controller.image.topics == {}


def test_a_request_waits_for_the_next_controller(make_world: Any) -> None:
    world = make_world()
    world.log.lead(-1)
    asked = world.nodes[2].peers.__class__(world, 0).send(2, ApiKey.CREATE_TOPICS, 7, NEW_TOPIC)
    world.sleep(1)
    assert not asked.done()
    world.log.lead(3)
    (topic,) = world.run(asked).topics
    assert topic.error_code == 0


def test_a_request_whose_controller_loses_its_place_is_done_by_the_next_one(make_world: Any) -> None:
    world = make_world()
    asked = world.nodes[2].peers.__class__(world, 0).send(2, ApiKey.CREATE_TOPICS, 7, NEW_TOPIC)
    world.until(lambda: world.log._waiting)  # appended, not committed
    world.log.lead(3)
    (topic,) = world.run(asked).topics
    assert topic.error_code == 0
    assert "t" in world.nodes[3].controller.image.topics


def test_the_controllers_own_node_asks_the_next_one_when_its_controller_loses_its_place(make_world: Any) -> None:
    """Clients are not told: the change was neither committed nor refused."""
    world = make_world()
    asked = world.nodes[2].peers.__class__(world, 0).send(1, ApiKey.CREATE_TOPICS, 7, NEW_TOPIC)
    world.until(lambda: world.log._waiting)  # appended, not committed
    world.log.lead(3)
    (topic,) = world.run(asked).topics
    assert topic.error_code == 0
    assert "t" in world.nodes[3].controller.image.topics


@pytest.mark.parametrize("node", [1, 2])
def test_topics_that_were_created_before_the_controller_moved_are_not_refused_as_existing(
    make_world: Any, node: int
) -> None:
    """Many are created in slices; the first controller answers for those that it got to."""
    world = make_world()
    names = [f"t{number}" for number in range(4 * PARTITIONS_AT_ONCE)]
    body = {
        "topics": [{"name": name, "num_partitions": 1, "replication_factor": 3} for name in names],
        "timeout_ms": 60_000,
    }
    asked = world.nodes[2].peers.__class__(world, 0).send(node, ApiKey.CREATE_TOPICS, 7, body)
    world.until(lambda: names[0] in world.nodes[1].controller.image.topics)
    world.until(lambda: world.log._waiting)
    world.log.lead(3)
    answered = world.run(asked).topics
    assert {each.error_code for each in answered} == {0}
    assert sorted(each.name for each in answered) == sorted(names)
    assert set(world.nodes[3].controller.image.topics) == set(names)


@pytest.mark.parametrize("node", [1, 2])
def test_without_a_next_controller_the_topics_that_were_created_keep_their_answer(make_world: Any, node: int) -> None:
    world = make_world()
    names = [f"t{number}" for number in range(4 * PARTITIONS_AT_ONCE)]
    body = {
        "topics": [{"name": name, "num_partitions": 1, "replication_factor": 3} for name in names],
        "timeout_ms": 3_000,
    }
    asked = world.nodes[2].peers.__class__(world, 0).send(node, ApiKey.CREATE_TOPICS, 7, body)
    world.until(lambda: names[0] in world.nodes[1].controller.image.topics)
    world.until(lambda: world.log._waiting)
    world.log.lead(-1)
    answered = {each.name: each.error_code for each in world.run(asked).topics}
    created = set(world.nodes[1].controller.image.topics)
    assert len(answered) == len(names)
    assert {name for name, code in answered.items() if code == ErrorCode.NONE} == created
    assert set(answered.values()) == {ErrorCode.NONE, ErrorCode.NOT_CONTROLLER}


@pytest.mark.parametrize(
    ("api", "version", "body", "error_of"),
    [
        (ApiKey.CREATE_TOPICS, 7, NEW_TOPIC, lambda answer: answer.topics[0]),
        (ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": "t"}], "timeout_ms": 100}, lambda answer: answer.responses[0]),
        (ApiKey.DELETE_TOPICS, 5, {"topic_names": ["t"], "timeout_ms": 100}, lambda answer: answer.responses[0]),
        (
            ApiKey.CREATE_PARTITIONS,
            3,
            {"topics": [{"name": "t", "count": 3}], "timeout_ms": 100},
            lambda answer: answer.results[0],
        ),
        (
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            {"resources": [{"resource_type": 2, "resource_name": "t", "configs": []}]},
            lambda answer: answer.responses[0],
        ),
        (
            ApiKey.ALTER_CONFIGS,
            2,
            {"resources": [{"resource_type": 2, "resource_name": "t", "configs": []}]},
            lambda answer: answer.responses[0],
        ),
        (ApiKey.ELECT_LEADERS, 2, {"topic_partitions": None}, lambda answer: answer),
        (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {}, lambda answer: answer),
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, {"topics": []}, lambda answer: answer),
        (
            ApiKey.UPDATE_FEATURES,
            2,
            {"feature_updates": [{"feature": "group.version", "max_version_level": 0, "upgrade_type": 2}]},
            lambda answer: answer,
        ),
        (ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 1}, lambda answer: answer),
    ],
)
def test_without_a_controller_every_request_is_told_to_try_again(
    make_world: Any, api: ApiKey, version: int, body: dict[str, Any], error_of: Any
) -> None:
    world = make_world(2)
    world.log.lead(-1)
    answer = world.call(2, api, version, body)
    assert error_of(answer).error_code == ErrorCode.NOT_CONTROLLER


def test_a_node_never_passes_on_what_another_node_has_passed_on(make_world: Any) -> None:
    world = make_world()
    answer = world.run(world.nodes[3].peers.send(2, ApiKey.CREATE_TOPICS, 7, NEW_TOPIC))
    assert answer.topics[0].error_code == ErrorCode.NOT_CONTROLLER


def test_a_brokers_own_request_gives_up_after_its_timeout(make_world: Any) -> None:
    world = make_world(2)
    world.log.lead(-1)
    before = world.loop.time()
    with pytest.raises(PeerUnavailable, match="no controller answered CREATE_TOPICS within 700 ms"):
        world.run(world.nodes[2].channel.send(ApiKey.CREATE_TOPICS, 7, NEW_TOPIC, timeout_ms=700))
    assert world.loop.time() - before == pytest.approx(0.7, abs=0.05)


def test_a_brokers_own_request_is_asked_again_of_the_next_controller(make_world: Any) -> None:
    world = make_world()
    world.cut_off.add(1)
    asked = world.nodes[2].channel.send(ApiKey.CREATE_TOPICS, 7, NEW_TOPIC, timeout_ms=30_000)
    world.sleep(0.1)
    world.log.lead(3)
    before = world.loop.time()
    assert world.run(asked).topics[0].error_code == 0
    assert world.loop.time() - before < 0.2


def test_producer_ids_of_different_brokers_never_meet(make_world: Any) -> None:
    world = make_world()
    seen: set[int] = set()
    for node in (1, 2, 3, 2):
        body = {"broker_id": node, "broker_epoch": world.nodes[node].life.epoch}
        answer = world.run(world.nodes[node].channel.send(ApiKey.ALLOCATE_PRODUCER_IDS, 0, body))
        block = set(range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len))
        assert len(block) == 1000
        assert not seen & block
        seen |= block
    stale = {"broker_id": 2, "broker_epoch": world.nodes[2].life.epoch - 1}
    answer = world.run(world.nodes[2].channel.send(ApiKey.ALLOCATE_PRODUCER_IDS, 0, stale))
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize("node", [1, 2, 3])
def test_clients_may_stay_with_the_broker_they_ask_while_administrators_see_the_controller(
    make_world: Any, node: int
) -> None:
    world = make_world()
    world.log.lead(3)
    world.sleep(0.1)
    assert world.call(node, ApiKey.METADATA, 12, {"topics": []}).controller_id == node
    assert world.call(node, ApiKey.DESCRIBE_CLUSTER, 2, {}).controller_id == 3


# --- auto creation


def test_metadata_of_a_missing_topic_shows_it_once_this_nodes_own_metadata_has_it(make_world: Any) -> None:
    world = make_world()
    (topic,) = world.call(
        3, ApiKey.METADATA, 12, {"topics": [{"name": "new"}], "allow_auto_topic_creation": True}
    ).topics
    assert topic.error_code == 0
    assert topic.partitions[0].leader_id in (1, 2, 3)


def test_a_node_that_lags_behind_says_that_it_does_not_know_the_topic_yet(make_world: Any) -> None:
    world = make_world()
    world.nodes[3].quorum.lags = True
    before, listeners = world.loop.time(), list(world.nodes[3].metadata._listeners)
    (topic,) = world.call(
        3, ApiKey.METADATA, 12, {"topics": [{"name": "new"}], "allow_auto_topic_creation": True}
    ).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.loop.time() - before == pytest.approx(1.0, abs=0.1)
    assert world.nodes[3].metadata._listeners == listeners


def test_metadata_is_answered_when_no_controller_could_create_the_topic(make_world: Any) -> None:
    world = make_world()
    world.create_topic("there", [1, 2])
    world.sleep(0.1)
    world.log.lead(-1)
    body = {"topics": [{"name": "there"}, {"name": "new"}], "allow_auto_topic_creation": True}
    answer = world.call(3, ApiKey.METADATA, 12, body)
    assert [topic.error_code for topic in answer.topics] == [0, ErrorCode.LEADER_NOT_AVAILABLE]
    assert len(answer.brokers) == 3


def test_a_request_that_makes_thousands_of_partitions_has_more_time_for_it() -> None:
    def patience_ms(*partitions: int) -> int:
        topics = [{"name": f"t{at}", "num_partitions": count} for at, count in enumerate(partitions)]
        encoded = codec.encode_request(ApiKey.CREATE_TOPICS, 5, {"topics": topics, "timeout_ms": 60_000})
        return forwarding._work_ms(codec.decode_request(ApiKey.CREATE_TOPICS, 5, encoded))

    assert patience_ms(1) == patience_ms(-1) < 10
    assert patience_ms(*[334] * 10) > 10_000
    assert patience_ms(2**31 - 1) == patience_ms(10_000)
