"""Brokers join, stay, are missed, come back and say goodbye: lifecycle, APIs and controller together."""

from __future__ import annotations

from typing import Any

import pytest

from broker_embedded.common.errors import BrokerError
from broker_embedded.controller.features import METADATA_VERSION
from broker_embedded.server.life.broker_state_machine import BrokerState
from ottla_wire.protocol import ApiKey, ErrorCode


def test_three_brokers_are_in_after_a_few_messages_and_no_heartbeat_interval(make_world: Any) -> None:
    world = make_world(start=False, broker_heartbeat_interval_ms=2_000, broker_session_timeout_ms=9_000)
    before = world.loop.time()
    world.start()
    assert world.loop.time() - before < 0.1
    for node in world.nodes.values():
        assert node.life.state is BrokerState.RUNNING
        assert not node.life.is_fenced
        own = node.metadata.image.brokers[node.node_id]
        assert (own.host, own.port, own.epoch, own.fenced) == ("localhost", 9000 + node.node_id, node.life.epoch, False)


def test_a_cluster_starts_with_the_newest_feature_levels(make_world: Any) -> None:
    features = make_world(1).active.controller.image.features
    assert features[METADATA_VERSION] == 33
    assert features["transaction.version"] == 2
    assert features["group.version"] == 1


def test_broker_epochs_are_the_offsets_of_the_registrations(make_world: Any) -> None:
    world = make_world()
    epochs = [node.life.epoch for node in world.nodes.values()]
    assert len(set(epochs)) == 3
    for node in world.nodes.values():
        offset = -1
        for batch in world.log.batches:
            for index, record in enumerate(batch.records):
                if type(record).__name__ == "RegisterBroker" and record.broker_id == node.node_id:
                    offset = batch.last_offset - len(batch.records) + 1 + index
        assert offset == node.life.epoch


def test_who_is_not_heard_of_for_a_session_is_fenced_and_others_lead(make_world: Any) -> None:
    world = make_world()
    world.create_topic("t", [2, 3, 1])
    assert world.partition("t").leader == 2
    killed_at = world.loop.time()
    world.nodes[2].kill()
    world.until(lambda: world.partition("t").leader == 3)
    assert 0.5 < world.loop.time() - killed_at < 1.2
    state = world.partition("t")
    assert (state.isr, state.leader_epoch) == ((3, 1), 1)
    assert world.active.controller.image.brokers[2].fenced


def test_nobody_is_fenced_who_beats(make_world: Any) -> None:
    world = make_world()
    offset = world.active.controller.image.offset
    world.sleep(30)
    assert world.active.controller.image.offset == offset


def test_a_restarted_process_gets_in_when_the_session_of_the_old_one_is_over(make_world: Any) -> None:
    world = make_world()
    world.create_topic("t", [2, 3])
    old_epoch = world.nodes[2].life.epoch
    world.nodes[2].kill()
    again = world.add(2)
    world.start(2)
    assert again.life.epoch > old_epoch
    state = world.partition("t")
    assert (state.leader, state.isr) == (3, (3,))


def test_a_process_that_shut_down_in_order_is_followed_by_another_at_once(make_world: Any) -> None:
    world = make_world()
    assert world.run(world.nodes[2].life.controlled_shutdown(10_000))
    world.nodes[2].kill()
    before = world.loop.time()
    world.add(2)
    world.start(2)
    assert world.loop.time() - before < 0.1


def test_a_second_process_under_the_same_id_is_not_let_in_while_the_first_lives(make_world: Any) -> None:
    world = make_world()
    first = world.nodes[2]
    second = world.add(2)
    world.nodes[2] = first
    with pytest.raises(BrokerError, match="not let into the cluster within 3000 ms"):
        world.run(second.life.start(timeout_ms=3_000))
    second.life.close()
    assert not world.active.controller.image.brokers[2].fenced
    assert first.life.epoch == world.active.controller.image.brokers[2].epoch


def test_a_broker_of_another_cluster_is_refused_for_good(make_world: Any) -> None:
    world = make_world(1)
    stranger = world.add(2)
    stranger.metadata.image = type(stranger.metadata.image)(cluster_id="another")
    with pytest.raises(BrokerError) as refused:
        world.run(stranger.life.start())
    assert refused.value.code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert stranger.life.state is BrokerState.SHUTTING_DOWN


def test_a_broker_that_was_cut_off_is_fenced_and_gets_in_again_by_itself(make_world: Any) -> None:
    world = make_world()
    world.create_topic("t", [3, 2])
    world.cut_off.add(3)
    world.nodes[3].quorum.lags = True
    world.until(lambda: world.active.controller.image.brokers[3].fenced)
    assert world.partition("t").leader == 2
    world.cut_off.clear()
    world.nodes[3].quorum.lags = False
    world.nodes[3].quorum.catch_up()
    world.until(lambda: not world.active.controller.image.brokers[3].fenced)
    world.until(lambda: not world.nodes[3].life.is_fenced)
    assert world.partition("t").leader == 2


def test_a_broker_that_reads_no_metadata_stays_fenced(make_world: Any) -> None:
    world = make_world(2)
    late = world.add(3)
    late.quorum.lags = True
    starting = world.loop.create_task(late.life.start())
    world.sleep(5)
    assert world.active.controller.image.brokers[3].fenced
    assert late.life.state is BrokerState.RECOVERY
    late.quorum.lags = False
    late.quorum.catch_up()
    world.run(starting)


def test_an_unregistered_broker_that_is_alive_registers_again(make_world: Any) -> None:
    world = make_world()
    epoch = world.nodes[3].life.epoch
    answer = world.call(2, ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 3})
    assert answer.error_code == 0
    world.until(lambda: world.nodes[3].life.epoch > epoch and not world.nodes[3].life.is_fenced)
    assert world.call(2, ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 9}).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


# --- controlled shutdown


def test_a_broker_leads_nothing_any_more_before_it_is_told_to_go(make_world: Any) -> None:
    world = make_world()
    world.create_topic("t", [2, 1, 3])
    leaving = world.loop.create_task(world.nodes[2].life.controlled_shutdown(30_000))
    world.until(lambda: world.partition("t").leader != 2)
    assert not leaving.done()
    assert world.run(leaving)
    state = world.partition("t")
    assert (state.leader, state.isr, state.leader_epoch) == (1, (1, 3), 1)
    assert world.active.controller.image.brokers[2].fenced


def test_a_broker_that_leaves_waits_until_the_others_know_who_leads(make_world: Any) -> None:
    world = make_world()
    world.create_topic("t", [2, 1, 3])
    world.nodes[3].quorum.lags = True
    leaving = world.loop.create_task(world.nodes[2].life.controlled_shutdown(60_000))
    world.sleep(5)
    assert not leaving.done()
    world.nodes[3].quorum.lags = False
    world.nodes[3].quorum.catch_up()
    assert world.run(leaving)


def test_the_only_broker_may_go_although_nobody_takes_over(make_world: Any) -> None:
    world = make_world(1)
    world.create_topic("t", [1])
    assert world.run(world.nodes[1].life.controlled_shutdown(30_000))
    assert (world.partition("t").leader, world.partition("t").isr) == (-1, (1,))
    world.nodes[1].kill()
    world.add(1)
    world.log.lead(1)
    world.start(1)
    assert (world.partition("t").leader, world.partition("t").leader_epoch) == (1, 2)


def test_without_a_controller_a_broker_leaves_after_its_timeout(make_world: Any) -> None:
    world = make_world()
    world.log.lead(-1)
    before = world.loop.time()
    assert not world.run(world.nodes[2].life.controlled_shutdown(2_000))
    assert world.loop.time() - before == pytest.approx(2.0, abs=0.1)
    assert world.nodes[2].life.state is BrokerState.SHUTTING_DOWN


def test_a_broker_that_never_got_in_just_goes(make_world: Any) -> None:
    world = make_world(1)
    assert not world.run(world.add(2).life.controlled_shutdown(60_000))


# --- the controller moves


def test_another_controller_gives_everybody_a_whole_session_and_fences_the_one_that_died(make_world: Any) -> None:
    world = make_world()
    world.create_topic("t", [1, 2, 3])
    world.nodes[1].kill()
    world.log.lead(2)
    world.until(lambda: world.partition("t").leader == 2)
    assert world.partition("t").isr == (2, 3)
    image = world.active.controller.image
    assert {node: broker.fenced for node, broker in image.brokers.items()} == {1: True, 2: False, 3: False}
    assert image.controller_id == 2


def test_a_process_restarted_while_the_controller_moved_needs_not_wait_for_a_session(make_world: Any) -> None:
    world = make_world(broker_session_timeout_ms=60_000, broker_heartbeat_interval_ms=10_000)
    world.nodes[3].kill()
    world.log.lead(2)
    before = world.loop.time()
    world.add(3)
    world.start(3)
    assert world.loop.time() - before < 1


def test_heartbeats_find_the_new_controller_while_the_old_one_is_silent(make_world: Any) -> None:
    world = make_world()
    world.cut_off.add(1)
    world.sleep(0.15)  # requests to the old one are under way, and nobody answers
    world.log.lead(2)
    world.sleep(10)
    image = world.nodes[2].controller.image
    assert [image.brokers[node].fenced for node in (1, 2, 3)] == [True, False, False]


# --- log directories


def test_what_was_led_from_a_log_directory_that_failed_is_led_by_others(make_world: Any) -> None:
    world = make_world(3, start=False)
    good, bad = bytes(15) + b"g", bytes(15) + b"b"
    world.add(2, log_dirs=[good, bad])
    world.start()
    world.create_topic("here", [2, 3])
    world.create_topic("there", [2, 3])
    topics = world.active.controller.image.topics
    directories = [
        {"id": directory, "topics": [{"topic_id": topics[name].topic_id, "partitions": [{"partition_index": 0}]}]}
        for name, directory in (("here", good), ("there", bad))
    ]
    body = {"broker_id": 2, "broker_epoch": world.nodes[2].life.epoch, "directories": directories}
    answer = world.call(3, ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, body)
    assert answer.error_code == 0
    assert [each.topics[0].partitions[0].error_code for each in answer.directories] == [0, 0]
    world.nodes[2].life.log_dir_failed(bad)
    world.until(lambda: world.partition("there").leader == 3)
    assert world.partition("there").isr == (3,)
    assert (world.partition("here").leader, world.partition("here").isr) == (2, (2, 3))
    metadata = world.call(1, ApiKey.METADATA, 12, {"topics": None})
    offline = {topic.name: list(topic.partitions[0].offline_replicas) for topic in metadata.topics}
    assert offline == {"here": [], "there": [2]}


def test_an_emptied_broker_does_not_lead_those_that_still_have_the_data(make_world: Any) -> None:
    """KAFKA-3410: it was the last in sync, and led by it the others would delete what they have."""
    world = make_world()
    world.create_topic("t", [2, 3])
    world.nodes[3].kill()
    world.until(lambda: world.partition("t").isr == (2,))
    world.nodes[2].kill()
    world.until(lambda: world.partition("t").leader == -1)
    world.add(2, log_dirs=[b"an empty disk..."])
    world.add(3)
    world.start(2, 3)
    assert (world.partition("t").leader, world.partition("t").isr) == (-1, (2,))
    body = {"election_type": 1, "topic_partitions": [{"topic": "t", "partitions": [0]}], "timeout_ms": 1000}
    elected = world.call(3, ApiKey.ELECT_LEADERS, 2, body)
    assert elected.replica_election_results[0].partition_result[0].error_code == 0
    assert (world.partition("t").leader, world.partition("t").isr) == (3, (3,))


def test_the_last_in_sync_broker_leads_again_when_it_comes_back_with_its_disk(make_world: Any) -> None:
    world = make_world()
    world.create_topic("t", [2, 3])
    world.nodes[3].kill()
    world.until(lambda: world.partition("t").isr == (2,))
    world.nodes[2].kill()
    world.until(lambda: world.partition("t").leader == -1)
    world.add(2)
    world.add(3)
    world.start(3)
    assert world.partition("t").leader == -1
    world.start(2)
    assert (world.partition("t").leader, world.partition("t").isr) == (2, (2,))
