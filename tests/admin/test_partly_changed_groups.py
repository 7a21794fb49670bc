"""Changes of groups of which a part was made: `PartlyDone` has what was done and what was refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import confluent_kafka
import pytest

from broker_embedded.cluster import EmbeddedCluster
from ottla import Queue
from ottla.admin import Admin, GroupInUse, PartlyDone, ResetPlan, TopicSpec
from ottla.admin.operations.consumer_groups import delete_groups
from ottla.errors import InputError
from ottla.records import TopicPartition
from ottla.testing import Kafka, wait_until
from ottla.wire_client.errors import BrokerRefused

Ask = Callable[..., Any]
NODES: Final = {"here": 1, "there": 2}


@pytest.fixture
def topics(admin: Admin, name: str) -> tuple[str, str]:
    """Two topics of two partitions."""
    names = (f"{name}-a", f"{name}-b")
    admin.create_topics(dict.fromkeys(names, TopicSpec(partitions=2, replication_factor=1)))
    return names


def committed(admin: Admin, group: str) -> set[TopicPartition]:
    (found,) = admin.describe_groups(group)
    return {TopicPartition(each.topic, each.partition) for each in found.offsets or ()}


def plan_to_forget_and_set(admin: Admin, group: str, topics: tuple[str, str]) -> ResetPlan:
    """Return the plan that deletes the offset of the first topic, and then commits one for the second."""
    plan = admin.plan_reset(group, to="earliest", topics=dict.fromkeys(topics, (0,)))
    first, second = plan.moves
    assert (first.topic, first.committed, second.committed) == (topics[0], 0, None)
    return dataclasses.replace(plan, moves=(dataclasses.replace(first, new=None), second))


def test_offsets_of_a_topic_that_a_member_reads_are_kept_and_the_others_are_gone(
    ask: Ask, admin: Admin, cluster: EmbeddedCluster, name: str, topics: tuple[str, str]
) -> None:
    gone, read = (TopicPartition(topic, 0) for topic in topics)
    admin.apply_reset(admin.plan_reset(name, to="earliest", topics=dict.fromkeys(topics, (0,))))
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": name, "enable.auto.commit": False}
    )
    consumer.subscribe([read.topic])
    try:
        wait_until(lambda: consumer.poll(0.05) is None and consumer.assignment(), timeout_s=30)
        with pytest.raises(PartlyDone) as partly:
            ask("forget_offsets", name, gone, read)
        assert partly.value.done == (str(gone),)
        (failed,) = partly.value.failed.items()
        assert failed[0] == str(read)
        assert isinstance(failed[1], GroupInUse)
        assert committed(admin, name) == {read}
        with pytest.raises(GroupInUse, match=f"members that subscribe to {read.topic}"):
            ask("forget_offsets", name, read, TopicPartition(read.topic, 1))
    finally:
        consumer.close()


def test_a_commit_that_is_refused_after_offsets_were_deleted_is_partly_done(
    ask: Ask, admin: Admin, cluster: EmbeddedCluster, name: str, topics: tuple[str, str]
) -> None:
    admin.apply_reset(admin.plan_reset(name, to="earliest", topics={topics[0]: [0]}))
    plan = plan_to_forget_and_set(admin, name, topics)
    with (
        cluster.faults.add(api="OFFSET_COMMIT", group=name, error="GROUP_AUTHORIZATION_FAILED"),
        pytest.raises(PartlyDone, match="GROUP_AUTHORIZATION_FAILED") as partly,
    ):
        ask("apply_reset", plan)
    assert (partly.value.done, list(partly.value.failed)) == ((f"{topics[0]}-0",), [f"{topics[1]}-0"])
    assert committed(admin, name) == set()
    ask("apply_reset", plan)
    assert committed(admin, name) == {TopicPartition(topics[1], 0)}


def test_offsets_of_a_share_group_that_are_refused_after_others_were_deleted_are_partly_done(
    ask: Ask, admin: Admin, cluster: EmbeddedCluster, name: str, topics: tuple[str, str]
) -> None:
    Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster).produce(topics[0], [b"x"], partition=0)
    admin.alter_group_settings(name, {"share.auto.offset.reset": "earliest"})
    with Queue(topics[0], group=name, bootstrap_servers=cluster.bootstrap_servers) as queue:
        job = queue.take(20)
        assert job is not None
    wait_until(lambda: not admin.describe_groups(name)[0].members, timeout_s=30)
    plan = plan_to_forget_and_set(admin, name, topics)
    stays = TopicPartition(topics[0], 1)
    admin.apply_reset(admin.plan_reset(name, to="earliest", topics={topics[0]: [1]}))
    with pytest.raises(InputError, match=f"deleted by whole topics, and {stays}, which stays, would lose 0; reset it"):
        ask("apply_reset", plan)
    assert committed(admin, name) >= {TopicPartition(topics[0], 0), stays}
    (other,) = admin.plan_reset(name, to="earliest", topics={topics[0]: [1]}).moves
    plan = dataclasses.replace(plan, moves=(*plan.moves, dataclasses.replace(other, new=None)))
    with (
        cluster.faults.add(api="ALTER_SHARE_GROUP_OFFSETS", group=name, error="GROUP_AUTHORIZATION_FAILED"),
        pytest.raises(PartlyDone, match="GROUP_AUTHORIZATION_FAILED") as partly,
    ):
        ask("apply_reset", plan)
    deleted = (f"{topics[0]}-0", f"{topics[0]}-1")
    assert (partly.value.done, list(partly.value.failed)) == (deleted, [f"{topics[1]}-0"])
    ask("apply_reset", plan)
    assert committed(admin, name) >= {TopicPartition(topics[1], 0)}


def test_an_offset_of_a_share_group_that_stays_is_there_after_another_of_its_topic_was_deleted(
    ask: Ask, admin: Admin, cluster: EmbeddedCluster, name: str, topics: tuple[str, str]
) -> None:
    topic = topics[0]
    Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster).produce(topic, [b"x"], partition=0)
    admin.alter_group_settings(name, {"share.auto.offset.reset": "earliest"})
    with Queue(topic, group=name, bootstrap_servers=cluster.bootstrap_servers) as queue:
        assert queue.take(20) is not None
    wait_until(lambda: not admin.describe_groups(name)[0].members, timeout_s=30)
    admin.apply_reset(admin.plan_reset(name, to="earliest", topics={topic: None}))
    plan = admin.plan_reset(name, to="earliest", topics={topic: None})
    first, second = plan.moves
    assert not second.is_change

    ask("apply_reset", dataclasses.replace(plan, moves=(dataclasses.replace(first, new=None), second)))

    assert committed(admin, name) == {TopicPartition(topic, 1)}


def test_groups_of_a_broker_that_fails_are_not_deleted_and_the_others_are() -> None:
    operation = delete_groups(["here", "there"])
    next(operation)
    found = [SimpleNamespace(key=key, node_id=node, error_code=0, error_message=None) for key, node in NODES.items()]
    asks = operation.send([SimpleNamespace(coordinators=found)])
    assert isinstance(asks, list)
    assert [each.broker for each in asks] == [1, 2]
    deleted = SimpleNamespace(group_id="there", error_code=0, error_message=None)
    with pytest.raises(PartlyDone) as partly:
        operation.send([BrokerRefused("broker 1 closed the connection"), SimpleNamespace(results=[deleted])])
    assert (partly.value.done, list(partly.value.failed)) == (("there",), ["here"])
