"""Replicas as they are planned, and moved; leaders as they are elected; settings that show through others."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, BrokerInfo, ClusterFacts, PartitionInfo, ReplicaMove, TopicInfo, TopicSpec
from ottla.admin.operations.replica_changes import replicas_planned
from ottla.admin.operations.setting_changes import _change
from ottla.errors import InputError
from ottla.records import TopicPartition
from ottla.testing import wait_until


@st.composite
def clusters(draw: st.DrawFn) -> ClusterFacts:
    brokers = tuple(
        BrokerInfo(id=number, host="h", port=1, rack=draw(st.sampled_from(["a", "b", None])))
        for number in range(1, draw(st.integers(1, 6)) + 1)
    )
    ids = [broker.id for broker in brokers]
    partitions = []
    for number in range(draw(st.integers(1, 5))):
        replicas = draw(st.lists(st.sampled_from([*ids, 99]), min_size=1, max_size=4, unique=True))
        in_sync = draw(st.lists(st.sampled_from(replicas), unique=True))
        leader = draw(st.sampled_from(in_sync)) if in_sync else None
        partitions.append(
            PartitionInfo(
                partition=number, leader=leader, leader_epoch=0, replicas=tuple(replicas), in_sync=tuple(in_sync)
            )
        )
    topic = TopicInfo(name="t", topic_id=None, is_internal=False, partitions=tuple(partitions))
    return ClusterFacts(at_ms=0, cluster_id="c", controller_id=1, parts=(), brokers=brokers, topics=(topic,))


@given(clusters(), st.integers(1, 7))
def test_a_plan_changes_the_number_of_replicas_and_nothing_else(facts: ClusterFacts, factor: int) -> None:
    if factor > len(facts.brokers):
        with pytest.raises(InputError, match="the brokers that are up"):
            replicas_planned(facts, "t", factor)
        return
    moves = {move.partition: move for move in replicas_planned(facts, "t", factor)}
    for each in facts.by_topic["t"].partitions:
        if each.partition not in moves:
            assert len(each.replicas) == factor
            continue
        move = moves[each.partition]
        assert len(set(move.new)) == len(move.new) == factor
        assert each.leader is None or each.leader in move.new
        if factor > len(each.replicas):
            assert move.new[: len(each.replicas)] == each.replicas, "what is there does not move"
        else:
            assert set(move.new) < set(each.replicas)
            assert not (set(move.old) - set(move.new)) & set(each.in_sync) or set(move.new) <= set(each.in_sync)


def test_replicas_are_added_on_the_brokers_that_have_few_and_taken_away(
    ask: Callable[..., Any], name: str, admin: Admin
) -> None:
    admin.create_topics({name: TopicSpec(partitions=6, replication_factor=1)})
    ask("alter_replicas", ask("plan_replicas", name, 2))
    (topic,) = admin.describe_topics(name, parts=())
    assert all(len(each.in_sync) == 2 for each in topic.partitions)
    ask("alter_replicas", ask("plan_replicas", name, 1))
    assert admin.describe_topics(name, parts=())[0].replication_factor == 1
    assert ask("plan_replicas", name, 1) == ()


def test_a_partition_that_is_given_twice_is_refused(ask: Callable[..., Any], name: str, admin: Admin) -> None:
    admin.create_topics({name: TopicSpec(partitions=1, replication_factor=1)})
    ((old,),) = (each.replicas for each in admin.describe_topics(name, parts=())[0].partitions)
    first, second = (number for number in (1, 2, 3) if number != old)
    moves = [ReplicaMove(topic=name, partition=0, old=(old,), new=(new,)) for new in (first, second)]
    with pytest.raises(InputError, match=rf"^{name}-0: found two moves, \[{first}\] and \[{second}\], wanted one"):
        ask("alter_replicas", moves)
    assert admin.describe_topics(name, parts=())[0].partitions[0].replicas == (old,)


def test_preferred_leaders_lead_again(
    ask: Callable[..., Any], name: str, admin: Admin, cluster: EmbeddedCluster
) -> None:
    admin.create_topics({name: TopicSpec(partitions=1, replication_factor=3)})
    (partition,) = admin.describe_topics(name, parts=())[0].partitions
    preferred = partition.replicas[0]
    cluster.stop_broker(preferred)
    wait_until(lambda: admin.describe_topics(name, parts=())[0].partitions[0].leader not in (preferred, None), 30)
    cluster.start_broker(preferred)
    wait_until(lambda: len(admin.describe_topics(name, parts=())[0].partitions[0].in_sync) == 3, 30)
    place = TopicPartition(name, 0)
    assert ask("elect_leaders", [place]) == (place,)
    assert admin.describe_topics(name, parts=())[0].partitions[0].leader == preferred
    assert ask("elect_leaders", [place]) == (), "it leads already"


def test_what_shows_through_an_unset_setting_is_in_its_own_unit() -> None:
    hours = SimpleNamespace(name="log.retention.hours", value="168", source=5)
    own = SimpleNamespace(name="retention.ms", value="5", source=1)
    entry = SimpleNamespace(value="5", config_source=1, is_sensitive=False, synonyms=[own, hours])
    change = _change("retention.ms", entry, None, "DYNAMIC_TOPIC_CONFIG")
    assert (change.new, change.new_source) == ("604800000", "DEFAULT_CONFIG")
