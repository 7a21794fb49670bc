"""KIP-848 groups, heartbeat by heartbeat, over a log in memory."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_embedded.common.errors import BrokerError
from broker_embedded.coordinator.group.consumer.assignment import NOTHING, TopicIdPartition
from broker_embedded.coordinator.group.consumer.group import ConsumerGroupState
from broker_embedded.coordinator.group.consumer.heartbeat import check_request
from broker_embedded.coordinator.group.consumer.member import AssignmentProgress, MemberState, MemberSubscription
from broker_embedded.coordinator.group.consumer.records import (
    RECORDS,
    PartitionMetadata,
    Regex,
    ResolvedRegex,
    SubscribedTopicMetadata,
)
from broker_embedded.coordinator.group.heartbeats import HeartbeatRequest, MembershipConfig
from broker_embedded.coordinator.group.member_records import (
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    TargetEpoch,
    TargetMember,
)
from broker_embedded.coordinator.group.offsets.committed import OffsetKey
from broker_embedded.coordinator.group.requests import CommitOffsets, FetchOffsets, PartitionCommit
from ottla_wire.protocol import ErrorCode


@pytest.fixture
def world(make_shard):
    shard = make_shard()
    shard.set_topics(t=4)
    return shard


def consumer_group(world):
    return world.shard.consumer.get("g")


# -- joining and sharing


def test_the_first_member_gets_everything_in_its_first_heartbeat(world):
    answer = world.enter("m1")
    assert answer.error is ErrorCode.NONE
    assert answer.member_epoch == 1
    assert world.named(answer.assignment) == {"t": [0, 1, 2, 3]}
    assert consumer_group(world).state is ConsumerGroupState.STABLE


def test_a_second_member_gets_partitions_only_after_the_first_gave_them_back(world):
    world.enter("m1")
    joined = world.enter("m2")
    assert joined.assignment == NOTHING
    assert consumer_group(world).members["m2"].progress.state is MemberState.UNRELEASED_PARTITIONS

    asked = world.beat("m1", 1, owned={"t": [0, 1, 2, 3]})
    kept = world.named(asked.assignment)["t"]
    assert len(kept) == 2
    assert asked.member_epoch == 1, "the epoch moves when the partitions are given back"
    assert world.beat("m2", 2).assignment is None, "not given back yet"

    assert world.beat("m1", 1, owned={"t": kept}).member_epoch == 2
    given = world.beat("m2", 2)
    assert sorted(world.named(given.assignment)["t"] + kept) == [0, 1, 2, 3]
    assert consumer_group(world).state is ConsumerGroupState.STABLE


def test_a_heartbeat_with_nothing_new_carries_no_assignment_and_writes_nothing(world):
    world.enter("m1")
    written = len(world.log.records)
    assert world.beat("m1", 1).assignment is None
    assert len(world.log.records) == written


def test_a_full_heartbeat_is_told_everything_again(world):
    world.enter("m1")
    answer = world.beat("m1", 1, topics=["t"], owned={"t": [0]}, rebalance_timeout_ms=60_000)
    assert world.named(answer.assignment) == {"t": [0, 1, 2, 3]}


def test_a_member_that_leaves_frees_its_partitions_for_the_next_heartbeat_of_the_others(world):
    world.enter("m1")
    world.enter("m2")
    kept = world.named(world.beat("m1", 1, owned={"t": [0, 1, 2, 3]}).assignment)
    world.beat("m1", 1, owned=kept)
    world.beat("m2", 2)
    assert world.beat("m2", -1).member_epoch == -1
    answer = world.beat("m1", 2, owned=kept)
    assert world.named(answer.assignment) == {"t": [0, 1, 2, 3]}


def test_new_partitions_reach_the_member_with_its_next_heartbeat(world):
    world.enter("m1")
    world.set_topics(t=6)
    answer = world.beat("m1", 1, owned={"t": [0, 1, 2, 3]})
    assert world.named(answer.assignment) == {"t": [0, 1, 2, 3, 4, 5]}


def test_a_topic_that_appears_later_is_assigned_when_it_does(world):
    assert world.enter("m1", topics=["later"]).assignment == NOTHING
    world.set_topics(t=4, later=2)
    assert world.named(world.beat("m1", 1, owned={}).assignment) == {"later": [0, 1]}


def test_a_deleted_topic_is_taken_away(world):
    world.set_topics(t=4, other=1)
    world.enter("m1", topics=["t", "other"])
    gone = world.assignment({"other": [0]})
    world.set_topics(t=4)
    answer = world.beat("m1", 1, owned={"t": [0, 1, 2, 3]})
    assert not gone & answer.assignment


def test_the_assignor_that_most_members_ask_for_is_used(world):
    world.set_topics(t=4, u=4)
    world.enter("m1", topics=["t", "u"], server_assignor="range")
    world.enter("m2", topics=["t", "u"], server_assignor="range")
    targets = consumer_group(world).targets
    assert world.named(targets["m1"]) == {"t": [0, 1], "u": [0, 1]}


def test_a_full_group_takes_nobody_more(make_shard):
    world = make_shard(group_consumer_max_size=1)
    world.set_topics(t=1)
    world.enter("m1")
    assert world.enter("m2").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.beat("m1", 1).error is ErrorCode.NONE


# -- fencing


def test_a_member_nobody_knows_is_told_so(world):
    world.enter("m1")
    assert world.beat("ghost", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.beat("ghost", -1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.beat("m1", 1, group="nowhere").error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_greater_epoch_and_one_that_is_too_old_are_fenced(world):
    world.enter("m1")
    world.set_topics(t=5)
    assert world.beat("m1", 1, owned={"t": [0, 1, 2, 3]}).member_epoch == 2
    assert world.beat("m1", 3).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert world.beat("m1", 1).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_the_previous_epoch_is_accepted_when_the_answer_was_lost(world):
    world.enter("m1")
    world.set_topics(t=5)
    world.beat("m1", 1, owned={"t": [0, 1, 2, 3]})
    again = world.beat("m1", 1, owned={"t": [0, 1, 2, 3]})
    assert again.error is ErrorCode.NONE
    assert again.member_epoch == 2


def test_a_fenced_member_joins_again_under_its_id_and_starts_from_nothing(world):
    world.enter("m1")
    assert world.beat("m1", 9).error is ErrorCode.FENCED_MEMBER_EPOCH
    answer = world.enter("m1")
    assert answer.error is ErrorCode.NONE
    assert world.named(answer.assignment) == {"t": [0, 1, 2, 3]}


# -- time


def test_a_silent_member_is_put_out_after_the_session_timeout(world):
    world.enter("m1")
    world.pass_ms(30_000)
    world.enter("m2")
    world.pass_ms(20_000)
    assert world.beat("m1", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.named(world.beat("m2", 2).assignment) == {"t": [0, 1, 2, 3]}


def test_a_member_that_keeps_what_it_should_give_back_is_put_out_after_its_rebalance_timeout(make_shard):
    world = make_shard(group_consumer_session_timeout_ms=3_600_000)
    world.set_topics(t=4)
    world.enter("m1")
    world.enter("m2")
    world.beat("m1", 1, owned={"t": [0, 1, 2, 3]})
    for _ in range(5):
        world.pass_ms(10_000)
        assert world.beat("m1", 1, owned={"t": [0, 1, 2, 3]}).error is ErrorCode.NONE
    world.pass_ms(10_001)
    assert world.beat("m1", 1).error is ErrorCode.UNKNOWN_MEMBER_ID


# -- static members


def test_a_static_member_that_comes_back_takes_its_partitions_again_and_nobody_else_moves(world):
    world.enter("m1", instance_id="i1")
    world.enter("m2", instance_id="i2")
    world.beat("m1", 1, owned={"t": [0, 1, 2, 3]})
    kept = world.named(consumer_group(world).members["m1"].progress.assigned)["t"]
    world.beat("m1", 1, owned={"t": kept})
    world.beat("m2", 2)
    epoch = consumer_group(world).epoch
    assert world.beat("m1", -2, instance_id="i1").member_epoch == -2
    back = world.enter("m1-restarted", instance_id="i1")
    assert world.named(back.assignment) == {"t": kept}
    assert consumer_group(world).epoch == epoch
    assert world.beat("m2", 2).assignment is None
    assert "m1" not in consumer_group(world).members


def test_an_instance_id_in_use_is_not_given_away(world):
    world.enter("m1", instance_id="i")
    assert world.enter("m2", instance_id="i").error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert world.beat("m1", 1, instance_id="i").error is ErrorCode.NONE


def test_the_predecessor_of_a_static_member_is_fenced(world):
    world.enter("m1", instance_id="i")
    world.beat("m1", -2, instance_id="i")
    world.enter("m2", instance_id="i")
    assert world.beat("m1", 1, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_stays_away_loses_its_place_after_a_session(world):
    world.enter("m1", instance_id="i")
    world.beat("m1", -2, instance_id="i")
    world.pass_ms(45_001)
    assert consumer_group(world).is_empty


# -- patterns


def test_a_pattern_matches_whole_names_and_follows_new_topics(world):
    world.set_topics(orders=1, orders_eu=1, reorders=1)
    answer = world.enter("m1", topics=[], topic_regex="orders.*")
    assert world.named(answer.assignment) == {"orders": [0], "orders_eu": [0]}
    world.set_topics(orders=1, orders_eu=1, reorders=1, orders_us=2)
    answer = world.beat("m1", 1, owned={"orders": [0], "orders_eu": [0]})
    assert world.named(answer.assignment) == {"orders": [0], "orders_eu": [0], "orders_us": [0, 1]}


def test_a_pattern_that_is_none_is_refused_and_changes_nothing(world):
    assert world.enter("m1", topics=[], topic_regex="(").error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert consumer_group(world) is None
    assert world.log.records == []


def test_a_pattern_nobody_uses_is_forgotten(world):
    world.enter("m1", topics=[], topic_regex="t.*")
    world.beat("m1", 1, topics=["t"], topic_regex="", owned={"t": [0, 1, 2, 3]})
    assert consumer_group(world).regexes == {}
    assert world.named(consumer_group(world).targets["m1"]) == {"t": [0, 1, 2, 3]}


# -- offsets


def commit(world, member_id, epoch, **fields):
    return world.commit_many(
        CommitOffsets(
            group_id="g",
            member_id=member_id,
            generation=epoch,
            partitions=(PartitionCommit(key=OffsetKey("t", 0), offset=3),),
            **fields,
        )
    ).error_of(OffsetKey("t", 0))


def test_offsets_are_committed_with_the_current_epoch_only(world):
    world.enter("m1")
    assert commit(world, "m1", 1) is ErrorCode.NONE
    assert commit(world, "m1", 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(world, "ghost", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, "m1", 1, knows_member_epochs=False) is ErrorCode.UNSUPPORTED_VERSION


def test_offsets_are_read_by_members_of_the_current_epoch_and_by_operators(world):
    world.enter("m1")
    commit(world, "m1", 1)
    key = OffsetKey("t", 0)
    assert world.fetch(FetchOffsets(group_id="g", keys=(key,))).offsets[key].offset == 3
    asked = FetchOffsets(group_id="g", keys=(key,), member_id="m1", member_epoch=0)
    assert world.fetch(asked).error is ErrorCode.STALE_MEMBER_EPOCH
    asked = FetchOffsets(group_id="g", keys=(key,), member_id="ghost", member_epoch=1)
    assert world.fetch(asked).error is ErrorCode.UNKNOWN_MEMBER_ID


# -- changing the protocol


def test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets(world):
    world.stable_member(topics=("t",))
    world.commit(offset=9, member_id=world.member_id, generation=1)
    assert world.enter("m1").error is ErrorCode.GROUP_ID_NOT_FOUND, "members of the classic protocol are in it"
    world.leave(world.member_id)
    assert world.enter("m1").error is ErrorCode.NONE
    key = OffsetKey("t", 0)
    for restarts in (0, 1):
        each = world.restart() if restarts else world
        assert each.fetch(FetchOffsets(group_id="g", keys=(key,))).offsets[key].offset == 9
        assert [group.group_type for group in each.shard.admin.list_groups()] == ["consumer"]


def test_an_empty_consumer_group_becomes_a_classic_group_and_keeps_its_offsets(world):
    world.enter("m1")
    commit(world, "m1", 1)
    assert world.join()["answer"].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    world.beat("m1", -1)
    world.stable_member(topics=("t",))
    key = OffsetKey("t", 0)
    for restarts in (0, 1):
        each = world.restart() if restarts else world
        assert each.fetch(FetchOffsets(group_id="g", keys=(key,))).offsets[key].offset == 3
        assert [group.group_type for group in each.shard.admin.list_groups()] == ["classic"]


# -- the log


def test_a_restart_finds_members_epochs_and_owners(world):
    world.enter("m1", instance_id="i1")
    world.enter("m2", topics=[], topic_regex="t")
    world.beat("m1", 1, owned={"t": [0, 1, 2, 3]})
    before = consumer_group(world)
    image = world.image
    world = world.restart()
    world.image = image
    after = consumer_group(world)
    for name in ("epoch", "assignment_epoch", "members", "static_members", "targets", "topics", "regexes", "_owners"):
        assert getattr(after, name) == getattr(before, name)
    kept = world.named(after.members["m1"].progress.assigned)["t"]
    assert world.beat("m1", 1, instance_id="i1", owned={"t": kept}).member_epoch == 2
    world.pass_ms(45_001)
    assert consumer_group(world).is_empty


def test_a_deleted_group_leaves_nothing_behind(world):
    world.enter("m1", topics=[], topic_regex="t")
    assert world.delete_group("g") is ErrorCode.NON_EMPTY_GROUP
    world.beat("m1", -1)
    assert world.delete_group("g") is ErrorCode.NONE
    last = {record.key: record.value for record in world.log.records}
    assert set(last.values()) == {None}
    assert consumer_group(world.restart()) is None


def test_tombstones_that_compaction_left_make_no_group(world):
    world.log.records = [
        RECORDS.encode("g", MemberMetadata(member_id="m", subscription=None)),
        RECORDS.encode("g", CurrentAssignment(member_id="m", progress=None)),
        RECORDS.encode("g", TargetEpoch(epoch=None)),
    ]
    assert consumer_group(world.restart()) is None


def test_when_the_log_refuses_the_member_is_told_and_the_shard_asks_to_be_replayed(world):
    world.log.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.enter("m1").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(world.reloads) == 1


@pytest.mark.parametrize(
    "record",
    [
        GroupEpoch(epoch=3),
        GroupEpoch(epoch=None),
        PartitionMetadata(topics={"t": SubscribedTopicMetadata(b"t" * 16, 3)}),
        PartitionMetadata(topics=None),
        MemberMetadata(member_id="m", subscription=MemberSubscription(instance_id="i", topic_regex="x", rack_id="r")),
        MemberMetadata(member_id="m", subscription=MemberSubscription(topic_names=frozenset({"a", "b"}))),
        MemberMetadata(member_id="m", subscription=None),
        TargetEpoch(epoch=0),
        TargetEpoch(epoch=None),
        TargetMember(member_id="m", assignment=frozenset({TopicIdPartition(b"t" * 16, 1)})),
        TargetMember(member_id="m", assignment=NOTHING),
        TargetMember(member_id="m", assignment=None),
        CurrentAssignment(
            member_id="m",
            progress=AssignmentProgress(
                epoch=2,
                previous_epoch=1,
                state=MemberState.UNREVOKED_PARTITIONS,
                assigned=frozenset({TopicIdPartition(b"t" * 16, 1)}),
                pending_revocation=frozenset({TopicIdPartition(b"t" * 16, 2)}),
            ),
        ),
        CurrentAssignment(member_id="m", progress=None),
        Regex(pattern="a.*", resolved=ResolvedRegex(frozenset({"a"}), version=4, timestamp_ms=5)),
        Regex(pattern="a.*", resolved=None),
    ],
)
def test_a_record_is_read_as_written(record):
    assert RECORDS.decode(RECORDS.encode("g", record)) == ("g", record)


# -- requests that are wrong whatever the group is


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"owned": None}, ErrorCode.INVALID_REQUEST),
        ({"owned": frozenset({TopicIdPartition(b"t" * 16, 0)})}, ErrorCode.INVALID_REQUEST),
        ({"topic_names": frozenset()}, ErrorCode.INVALID_REQUEST),
        ({"topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(fields, error):
    sound = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1,
        "topic_names": frozenset({"t"}),
        "owned": NOTHING,
    }
    check_request(HeartbeatRequest(**sound), MembershipConfig(), requires_member_id=True)
    with pytest.raises(BrokerError) as refused:
        check_request(HeartbeatRequest(**{**sound, **fields}), MembershipConfig(), requires_member_id=True)
    assert refused.value.code is error


# -- the promise: nobody works on a partition that somebody else works on


@pytest.fixture
def machine(make_shard):
    """The state machine of hypothesis, with a shard to drive."""

    class Groups(RuleBasedStateMachine):
        @initialize()
        def begin(self) -> None:
            self.world = make_shard()
            self.partitions = {"t": 3, "u": 2}
            self.world.set_topics(**self.partitions)
            self.owned: dict[str, frozenset] = {}
            self.epochs: dict[str, int] = {}
            self.asked: dict[str, frozenset] = {}
            self.subscriptions: dict[str, tuple[str, ...]] = {}

        @rule(member=st.sampled_from("mnop"), topics=st.sampled_from([("t",), ("u",), ("t", "u")]))
        def join(self, member: str, topics: tuple[str, ...]) -> None:
            """A member starts, or starts again from nothing."""
            self.owned.pop(member, None)
            self.subscriptions[member] = topics
            self.hear(member, self.world.enter(member, topics=topics))

        @precondition(lambda self: self.epochs)
        @rule(data=st.data(), says=st.booleans())
        def beat(self, data, says: bool) -> None:
            member = data.draw(st.sampled_from(sorted(self.epochs)))
            owned = self.world.named(self.owned[member]) if says else None
            self.hear(member, self.world.beat(member, self.epochs[member], owned=owned))

        @precondition(lambda self: self.epochs)
        @rule(data=st.data())
        def give_back(self, data) -> None:
            """The member acts on what it was told: it stops what it shall not have, then starts what it shall."""
            member = data.draw(st.sampled_from(sorted(self.epochs)))
            self.owned[member] = self.asked[member]

        @precondition(lambda self: self.epochs)
        @rule(data=st.data())
        def leave(self, data) -> None:
            member = data.draw(st.sampled_from(sorted(self.epochs)))
            self.world.beat(member, -1)
            self.forget(member)

        @rule()
        def restart(self) -> None:
            image = self.world.image
            self.world = self.world.restart()
            self.world.image = image

        @rule(topic=st.sampled_from("tu"))
        def grow(self, topic: str) -> None:
            if self.partitions[topic] < 6:
                self.partitions[topic] += 1
                self.world.set_topics(**self.partitions)

        def hear(self, member: str, answer) -> None:
            if answer.error is not ErrorCode.NONE:
                assert answer.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
                self.forget(member)
                return
            self.epochs[member] = answer.member_epoch
            self.owned.setdefault(member, NOTHING)
            if answer.assignment is not None:
                self.asked[member] = answer.assignment

        def forget(self, member: str) -> None:
            for each in (self.owned, self.epochs, self.asked):
                each.pop(member, None)

        @invariant()
        def no_partition_has_two_workers(self) -> None:
            workers = Counter(partition for owned in getattr(self, "owned", {}).values() for partition in owned)
            assert all(count == 1 for count in workers.values()), workers

        def teardown(self) -> None:
            """Left alone, the group settles: everything that somebody subscribes to is worked on."""
            if not getattr(self, "epochs", None):
                return
            for _ in range(12):
                for member in sorted(self.epochs):
                    self.owned[member] = self.asked[member]
                    owned = self.world.named(self.owned[member])
                    self.hear(member, self.world.beat(member, self.epochs[member], owned=owned))
            for member in self.epochs:
                self.owned[member] = self.asked[member]
            self.no_partition_has_two_workers()
            topics = {topic for member in self.epochs for topic in self.subscriptions[member]}
            wanted = self.world.assignment({topic: range(self.partitions[topic]) for topic in topics})
            assert frozenset().union(*self.owned.values()) == wanted
            assert self.world.shard.consumer.get("g").state is ConsumerGroupState.STABLE

    return Groups


def test_no_partition_ever_has_two_workers_and_a_group_left_alone_settles(machine):
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(machine, settings=settings(stateful_step_count=40))


# -- expiry

DAY_MS = 86_400_000


def test_offsets_of_topics_that_members_read_do_not_expire_and_others_do(make_shard):
    world = make_shard(group_consumer_session_timeout_ms=30 * DAY_MS)
    world.set_topics(t=1, dropped=1)
    world.enter("m1", topics=["t", "dropped"])
    keys = [OffsetKey("t", 0), OffsetKey("dropped", 0)]
    for key in keys:
        assert world.commit(key=key, member_id="m1", generation=1) is ErrorCode.NONE
    world.beat("m1", 1, topics=["t"], owned={"t": [0]})
    world.pass_ms(8 * DAY_MS)
    found = world.fetch(FetchOffsets(group_id="g", keys=tuple(keys))).offsets
    assert [found[key].offset for key in keys] == [1, -1]


def test_an_empty_group_goes_with_its_last_offset(world):
    world.enter("m1")
    world.commit(member_id="m1", generation=1)
    world.beat("m1", -1)
    world.pass_ms(6 * DAY_MS)
    assert consumer_group(world) is not None
    world.pass_ms(2 * DAY_MS)
    assert consumer_group(world) is None
    assert consumer_group(world.restart()) is None
