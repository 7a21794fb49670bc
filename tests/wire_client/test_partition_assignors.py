"""Who gets which partitions, for any group: complete, balanced, sticky, and never two owners at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.records import TopicPartition
from ottla.wire_client.group.partition_assignors import Subscriber, cooperative_sticky_assign, range_assign

TOPICS = st.dictionaries(st.sampled_from("abc"), st.integers(1, 7), min_size=1)
NAMES = [f"m{number}" for number in range(5)]


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[Subscriber], dict[str, int]]:
    topics = draw(TOPICS)
    members = []
    for name in NAMES[: draw(st.integers(1, 5))]:
        wanted = draw(st.frozensets(st.sampled_from(sorted(topics))))
        owned = draw(st.lists(st.tuples(st.sampled_from(sorted(topics)), st.integers(0, 6)), max_size=5))
        members.append(
            Subscriber(
                member_id=name,
                topics=wanted,
                owned=tuple(TopicPartition(*place) for place in owned if place[1] < topics[place[0]]),
                generation=draw(st.integers(1, 2)),
            )
        )
    return members, topics


@given(groups())
def test_range_gives_each_partition_to_one_subscriber(group: tuple[list[Subscriber], dict[str, int]]) -> None:
    members, topics = group
    found = range_assign(members, topics)
    given_out = [place for places in found.values() for place in places]
    subscribed = {topic for member in members for topic in member.topics}
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == {TopicPartition(t, n) for t in subscribed for n in range(topics[t])}
    for member in members:
        assert {place.topic for place in found[member.member_id]} <= member.topics


@given(groups())
def test_sticky_rounds_end_with_everything_given_out_and_nobody_two_ahead(
    group: tuple[list[Subscriber], dict[str, int]],
) -> None:
    members, topics = group
    for generation in range(3, 6):
        found = cooperative_sticky_assign(members, topics)
        given_out = [place for places in found.values() for place in places]
        assert len(given_out) == len(set(given_out))
        if generation == 3:
            newest = {place for member in members if member.generation == 2 for place in member.owned}
            for member in members:
                others = {
                    place for other in members if other is not member and other.generation == 2 for place in other.owned
                }
                sole = newest - set(member.owned)
                assert not (set(found[member.member_id]) & others & sole), "its owner has not let go of it yet"
        members = [
            Subscriber(
                member_id=member.member_id,
                topics=member.topics,
                owned=tuple(found[member.member_id]),
                generation=generation,
            )
            for member in members
        ]
    subscribed = {topic for member in members for topic in member.topics}
    assert set(given_out) == {TopicPartition(t, n) for t in subscribed for n in range(topics[t])}
    assert cooperative_sticky_assign(members, topics) == found, "a third round changes nothing"
    for one in members:
        for other in members:
            movable = [place for place in found[one.member_id] if place.topic in other.topics]
            assert not movable or len(found[one.member_id]) - len(found[other.member_id]) < 2


def test_what_two_members_say_they_have_is_given_to_nobody_before_both_let_go() -> None:
    place = TopicPartition("a", 0)
    both = [
        Subscriber(member_id=name, topics=frozenset("a"), owned=(place,), generation=2) for name in ("first", "second")
    ]
    third = Subscriber(member_id="a third", topics=frozenset("a"))
    assert cooperative_sticky_assign([*both, third], {"a": 1}) == {"first": [], "second": [], "a third": []}
    without = [Subscriber(member_id=each.member_id, topics=each.topics, generation=3) for each in (*both, third)]
    assert sum(map(len, cooperative_sticky_assign(without, {"a": 1}).values())) == 1


def test_a_member_that_comes_takes_only_what_is_more_than_fair() -> None:
    topics = {"a": 6}
    old = Subscriber(
        member_id="old", topics=frozenset("a"), owned=tuple(TopicPartition("a", n) for n in range(6)), generation=1
    )
    new = Subscriber(member_id="new", topics=frozenset("a"))
    found = cooperative_sticky_assign([old, new], topics)
    assert len(found["old"]) == 3
    assert found["new"] == [], "what moves is given in the next round"
