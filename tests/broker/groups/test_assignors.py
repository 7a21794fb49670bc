"""Server-side assignors: everything is assigned once, fairly, and moves no more than it must."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.coordinator.group.consumer.assignment import TopicIdPartition, of_topics
from broker_embedded.coordinator.group.consumer.assignors import ASSIGNORS, GroupSpec, MemberSpec, assign_range
from broker_embedded.coordinator.group.consumer.assignors.uniform import assign_uniform

A, B, C = (letter * 16 for letter in (b"a", b"b", b"c"))


def spec(members: dict[str, MemberSpec], **counts: int) -> GroupSpec:
    return GroupSpec(members=members, partition_counts={name.encode() * 16: count for name, count in counts.items()})


@st.composite
def groups(draw):
    counts = draw(st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 7), min_size=1))
    names = draw(st.lists(st.sampled_from("mnopqrs"), unique=True, min_size=1))
    same = draw(st.booleans())
    subscriptions = st.frozensets(st.sampled_from(sorted(counts)), min_size=1)
    everybodys = draw(subscriptions)
    members = {
        name: MemberSpec(
            topics=everybodys if same else draw(subscriptions), instance_id=draw(st.none() | st.just(name))
        )
        for name in names
    }
    used = frozenset().union(*(member.topics for member in members.values()))
    return GroupSpec(
        members=members, partition_counts={topic: count for topic, count in counts.items() if topic in used}
    )


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(group=groups())
def test_every_partition_goes_to_exactly_one_member_that_subscribes_to_it(name, group):
    plan = ASSIGNORS[name](group)
    assert plan.keys() == group.members.keys()
    assigned = [partition for each in plan.values() for partition in each]
    wanted = {
        TopicIdPartition(topic, number) for topic, count in group.partition_counts.items() for number in range(count)
    }
    assert sorted(assigned) == sorted(wanted)
    for member_id, partitions in plan.items():
        assert {partition.topic_id for partition in partitions} <= group.members[member_id].topics


@given(group=groups())
def test_with_one_subscription_uniform_shares_differ_by_one_at_most(group):
    if len({member.topics for member in group.members.values()}) == 1:
        sizes = [len(partitions) for partitions in assign_uniform(group).values()]
        assert max(sizes) - min(sizes) <= 1


@given(group=groups())
def test_with_different_subscriptions_no_move_makes_a_uniform_plan_fairer(group):
    plan = assign_uniform(group)
    for giver, partitions in plan.items():
        for partition in partitions:
            for taker, member in group.members.items():
                if partition.topic_id in member.topics:
                    assert len(plan[giver]) < len(plan[taker]) + 2


@given(group=groups())
def test_uniform_leaves_a_fair_plan_as_it_is(group):
    plan = assign_uniform(group)
    again = GroupSpec(
        members={name: MemberSpec(topics=member.topics, current=plan[name]) for name, member in group.members.items()},
        partition_counts=group.partition_counts,
    )
    assert assign_uniform(again) == plan


def test_when_a_member_leaves_the_others_keep_what_they_have():
    members = {name: MemberSpec(topics=frozenset({A})) for name in "mno"}
    plan = assign_uniform(spec(members, a=6))
    rest = {name: MemberSpec(topics=frozenset({A}), current=plan[name]) for name in "mn"}
    after = assign_uniform(spec(rest, a=6))
    assert all(plan[name] <= after[name] for name in "mn")


def test_when_a_member_joins_only_its_share_moves():
    members = {name: MemberSpec(topics=frozenset({A})) for name in "mn"}
    plan = assign_uniform(spec(members, a=6))
    more = {name: MemberSpec(topics=frozenset({A}), current=plan[name]) for name in "mn"}
    after = assign_uniform(spec({**more, "o": MemberSpec(topics=frozenset({A}))}, a=6))
    assert all(after[name] < plan[name] for name in "mn")
    assert len(after["o"]) == 2


def test_uniform_drops_what_is_no_longer_subscribed_to():
    members = {"m": MemberSpec(topics=frozenset({A}), current=of_topics([(A, [0]), (B, [0])]))}
    assert assign_uniform(spec(members, a=1)) == {"m": of_topics([(A, [0])])}


def test_range_gives_the_same_numbers_of_every_topic_to_the_same_member():
    members = {name: MemberSpec(topics=frozenset({A, B})) for name in ("m", "n")}
    plan = assign_range(spec(members, a=3, b=3))
    assert plan == {"m": of_topics([(A, [0, 1]), (B, [0, 1])]), "n": of_topics([(A, [2]), (B, [2])])}


def test_range_puts_static_members_first_so_that_a_new_member_id_changes_nothing():
    def members(member_id: str) -> dict[str, MemberSpec]:
        return {
            "dynamic": MemberSpec(topics=frozenset({A})),
            member_id: MemberSpec(topics=frozenset({A}), instance_id="i"),
        }

    assert assign_range(spec(members("zzz"), a=3))["zzz"] == assign_range(spec(members("aaa"), a=3))["aaa"]


def test_without_members_nothing_is_assigned():
    assert assign_uniform(spec({}, a=3)) == {}
    assert assign_range(spec({}, a=3)) == {}
