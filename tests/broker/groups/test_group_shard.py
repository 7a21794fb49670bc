"""A shard of groups over a log in memory: what is kept, what a restart finds, what a failed append changes."""

from __future__ import annotations

import pytest

from broker_embedded.coordinator.group.classic import State
from broker_embedded.coordinator.group.offsets.committed import OffsetAndMetadata, OffsetKey
from broker_embedded.coordinator.group.records import (
    ClassicGroupRecord,
    OffsetRecord,
    decode,
    group_record,
    offset_record,
)
from broker_embedded.coordinator.group.requests import (
    CommitOffsets,
    DeleteOffsets,
    FetchedOffset,
    FetchOffsets,
    PartitionCommit,
)
from broker_embedded.coordinator.runtime.partitioner import java_string_hash, partition_for
from ottla_wire.protocol import ErrorCode

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
T0 = OffsetKey("t", 0)
T1 = OffsetKey("t", 1)


def committed_offset(shard, key=T0, group="g", **asked):
    return shard.fetch(FetchOffsets(group_id=group, keys=(key,), **asked)).offsets[key]


# -- where a group lives


@pytest.mark.parametrize(
    ("text", "hash_code"), [("", 0), ("a", 97), ("group", 98629247), ("hello", 99162322), ("Aa", 2112), ("BB", 2112)]
)
def test_the_hash_is_javas(text, hash_code):
    assert java_string_hash(text) == hash_code


def test_a_character_outside_the_basic_plane_counts_as_two_units():
    assert java_string_hash("\U0001f600") == (31 * 0xD83D + 0xDE00) & 0xFFFFFFFF


def test_the_smallest_integer_maps_to_partition_zero():
    assert java_string_hash("polygenelubricants") == 0x80000000
    assert partition_for("polygenelubricants", 7) == 0


# -- offsets


def test_a_committed_offset_is_read_back(shard):
    assert shard.commit(offset=5, metadata="note", leader_epoch=3) is ErrorCode.NONE
    assert committed_offset(shard) == FetchedOffset(offset=5, leader_epoch=3, metadata="note")


def test_an_offset_never_committed_is_minus_one_without_an_error(shard):
    assert committed_offset(shard) == FetchedOffset(offset=-1)


def test_all_offsets_of_a_group_are_listed_when_no_partition_is_named(shard):
    shard.commit(key=T0, offset=1)
    shard.commit(key=T1, offset=2)
    shard.commit(key=T1, offset=2, group="other")
    found = shard.fetch(FetchOffsets(group_id="g")).offsets
    assert {key: one.offset for key, one in found.items()} == {T0: 1, T1: 2}


def test_metadata_over_the_limit_is_refused_for_its_partition_only(make_shard):
    shard = make_shard(offset_metadata_max_bytes=4)
    answer = shard.commit_many(
        CommitOffsets(
            group_id="g",
            partitions=(
                PartitionCommit(key=T0, offset=1, metadata="12345"),
                PartitionCommit(key=T1, offset=1, metadata="1234"),
            ),
        )
    )
    assert answer.error_of(T0) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert answer.error_of(T1) is ErrorCode.NONE
    assert committed_offset(shard).offset == -1


def test_a_commit_with_a_generation_for_a_group_that_does_not_exist_is_refused(shard):
    assert shard.commit(member_id="m", generation=3) is ErrorCode.ILLEGAL_GENERATION


def test_a_commit_is_visible_only_when_the_log_has_it(shard):
    shard.log.hold()
    reply = shard.commit_later(offset=7)
    assert reply.body is None
    assert committed_offset(shard).offset == -1
    shard.log.release()
    assert reply.body["answer"].error_of(T0) is ErrorCode.NONE
    assert committed_offset(shard).offset == 7


@pytest.mark.parametrize(
    ("append_error", "told"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_a_commit_that_the_log_refuses_changes_nothing_and_says_what_to_do(shard, append_error, told):
    shard.commit(offset=1)
    shard.log.fail_with = append_error
    assert shard.commit(offset=2) is told
    assert committed_offset(shard).offset == 1


def test_offsets_of_an_open_transaction_are_unstable_and_count_once_it_commits(shard):
    shard.commit(offset=1)
    pending = OffsetAndMetadata(offset=9, commit_timestamp_ms=0)
    shard.shard.replay(offset_record("g", T0, pending), timestamp_ms=0, producer_id=4)
    assert committed_offset(shard).offset == 1
    assert committed_offset(shard, require_stable=True).error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    shard.shard.replay_end_of_transaction(4, committed=True)
    assert committed_offset(shard, require_stable=True) == FetchedOffset(offset=9)


def test_offsets_of_an_aborted_transaction_never_count(shard):
    shard.shard.replay(
        offset_record("g", T0, OffsetAndMetadata(offset=9, commit_timestamp_ms=0)), timestamp_ms=0, producer_id=4
    )
    shard.shard.replay_end_of_transaction(4, committed=False)
    assert committed_offset(shard, require_stable=True) == FetchedOffset()


# -- deleting


def test_deleting_an_offset_leaves_the_others(shard):
    shard.commit(key=T0)
    shard.commit(key=T1)
    assert shard.delete_offsets(DeleteOffsets(group_id="g", keys=(T0,))).partitions == {T0: ErrorCode.NONE}
    assert committed_offset(shard, T0).offset == -1
    assert committed_offset(shard, T1).offset == 1


def test_offsets_of_a_topic_that_members_read_are_not_deleted(shard):
    shard.stable_member(topics=("t",))
    other = OffsetKey("unread", 0)
    shard.commit(key=T0, member_id=shard.member_id, generation=1)
    shard.commit(key=other, member_id=shard.member_id, generation=1)
    answer = shard.delete_offsets(DeleteOffsets(group_id="g", keys=(T0, other)))
    assert answer.partitions == {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, other: ErrorCode.NONE}


def test_offsets_of_a_group_that_is_not_there_cannot_be_deleted(shard):
    assert shard.delete_offsets(DeleteOffsets(group_id="g", keys=(T0,))).error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_deleted_group_takes_its_offsets_with_it_also_after_a_restart(shard):
    shard.commit()
    assert shard.delete_group("g") is ErrorCode.NONE
    assert shard.delete_group("g") is ErrorCode.GROUP_ID_NOT_FOUND
    assert committed_offset(shard).offset == -1
    assert shard.restart().shard.admin.list_groups() == []


def test_a_group_with_members_is_not_deleted(shard):
    shard.stable_member()
    assert shard.delete_group("g") is ErrorCode.NON_EMPTY_GROUP


def test_offsets_of_a_deleted_topic_are_forgotten(shard):
    other = OffsetKey("kept", 0)
    shard.commit(key=T0)
    shard.commit(key=other)
    shard.shard.admin.forget_topics({"t"})
    assert committed_offset(shard, T0).offset == -1
    assert committed_offset(shard, other).offset == 1
    assert committed_offset(shard.restart(), T0).offset == -1


# -- restart


def test_a_restart_finds_offsets_and_generation_and_the_member_goes_on(shard):
    shard.stable_member()
    shard.commit(offset=42, member_id=shard.member_id, generation=1)
    restarted = shard.restart()
    assert committed_offset(restarted).offset == 42
    assert restarted.group().state is State.STABLE
    assert restarted.heartbeat(shard.member_id, generation=1) is ErrorCode.NONE


def test_a_restart_in_the_middle_of_a_rebalance_finds_the_last_complete_generation(shard):
    shard.stable_member()
    shard.join()
    assert shard.group().state is State.PREPARING_REBALANCE
    restarted = shard.restart()
    assert restarted.group().state is State.STABLE
    assert list(restarted.group().members) == [shard.member_id]
    assert restarted.heartbeat(shard.member_id, generation=1) is ErrorCode.NONE


def test_a_restart_while_the_plan_is_being_written_does_not_hand_it_out(shard):
    joined = shard.join()
    shard.log.hold()
    waiting = shard.sync(joined["answer"].member_id, plan={joined["answer"].member_id: b"x"})
    restarted = shard.restart()
    assert waiting.body["answer"].error is ErrorCode.NOT_COORDINATOR
    assert restarted.group() is None


def test_members_that_do_not_come_back_after_a_restart_leave_an_empty_group(shard):
    shard.stable_member()
    restarted = shard.restart()
    restarted.pass_ms(10_000)
    assert restarted.group().state is State.EMPTY
    assert restarted.restart().group().state is State.EMPTY


def test_who_waits_for_a_join_is_told_when_the_shard_moves_away(shard):
    shard.stable_member()
    waiting = shard.join_later()
    shard.shard.unload(ErrorCode.NOT_COORDINATOR)
    assert waiting.body["answer"].error is ErrorCode.NOT_COORDINATOR
    assert not shard.timers


# -- expiry


def test_offsets_of_an_empty_group_expire_counted_from_when_it_became_empty(shard):
    shard.stable_member(topics=("t",))
    shard.commit(member_id=shard.member_id, generation=1)
    shard.keep_alive_ms(9 * DAY_MS, step_ms=HOUR_MS)
    assert committed_offset(shard).offset == 1, "the group lives"
    shard.leave(shard.member_id)
    shard.pass_ms(7 * DAY_MS - HOUR_MS)
    assert committed_offset(shard).offset == 1
    shard.pass_ms(2 * HOUR_MS)
    assert committed_offset(shard).offset == -1
    assert shard.group() is None
    assert shard.restart().shard.admin.list_groups() == []


def test_offsets_of_a_group_without_members_expire_counted_from_their_commit(shard):
    shard.commit(key=T0)
    shard.pass_ms(4 * DAY_MS)
    shard.commit(key=T1)
    shard.pass_ms(3 * DAY_MS + HOUR_MS)
    assert committed_offset(shard, T0).offset == -1
    assert committed_offset(shard, T1).offset == 1
    assert shard.group() is not None


def test_a_stable_group_loses_only_offsets_of_topics_it_no_longer_reads(shard):
    shard.stable_member(topics=("t",))
    old = OffsetKey("dropped", 0)
    for key in (T0, old):
        shard.commit(key=key, member_id=shard.member_id, generation=1)
    shard.keep_alive_ms(8 * DAY_MS, step_ms=HOUR_MS)
    assert committed_offset(shard, T0).offset == 1
    assert committed_offset(shard, old).offset == -1


def test_a_commit_with_an_expiry_of_its_own_goes_by_that(shard):
    shard.commit_many(
        CommitOffsets(group_id="g", partitions=(PartitionCommit(key=T0, offset=1),), retention_ms=HOUR_MS)
    )
    restarted = shard.restart()
    assert committed_offset(restarted).offset == 1
    restarted.pass_ms(2 * HOUR_MS)
    assert committed_offset(restarted).offset == -1


def test_an_offset_that_a_transaction_is_about_to_change_does_not_expire(shard):
    shard.commit()
    shard.shard.replay(
        offset_record("g", T0, OffsetAndMetadata(offset=9, commit_timestamp_ms=0)), timestamp_ms=0, producer_id=4
    )
    shard.pass_ms(8 * DAY_MS)
    assert committed_offset(shard).offset == 1


# -- showing


def test_a_stable_group_shows_its_members_and_another_hides_what_they_put_in(shard):
    shard.stable_member()
    described = shard.shard.admin.describe_group("g")
    assert (described.state, described.protocol, described.protocol_type) == ("Stable", "range", "consumer")
    assert described.members[0].assignment == b"plan"
    shard.join()
    described = shard.shard.admin.describe_group("g")
    assert (described.state, described.protocol) == ("PreparingRebalance", "")
    assert [member.assignment for member in described.members] == [b"", b""]


def test_a_group_that_is_not_there_is_dead(shard):
    described = shard.shard.admin.describe_group("nobody")
    assert described.state == "Dead"
    assert described.error is ErrorCode.GROUP_ID_NOT_FOUND


def test_groups_are_listed_with_protocol_and_state(shard):
    shard.stable_member()
    shard.commit(group="only offsets")
    listed = {group.group_id: (group.state, group.protocol_type) for group in shard.shard.admin.list_groups()}
    assert listed == {"g": ("Stable", "consumer"), "only offsets": ("Empty", "")}


# -- records


def test_records_of_offsets_and_groups_are_read_as_written(shard):
    with_expiry = OffsetAndMetadata(offset=1, metadata="m", commit_timestamp_ms=2, expire_timestamp_ms=3)
    assert decode(offset_record("g", T0, with_expiry)) == OffsetRecord(group_id="g", key=T0, committed=with_expiry)
    shard.stable_member()
    snapshot = shard.group().snapshot()
    assert decode(group_record("g", snapshot, state_since_ms=5)) == ClassicGroupRecord(
        group_id="g", snapshot=snapshot, state_since_ms=5
    )
    assert decode(group_record("g", None)) == ClassicGroupRecord(group_id="g", snapshot=None)


# -- offsets inside transactions


def test_an_offset_of_a_transaction_counts_when_it_is_committed(shard):
    assert shard.commit(offset=1) is ErrorCode.NONE
    for producer, committed, expected in ((7, True, 5), (8, False, 5)):
        assert shard.commit(offset=producer - 2, producer_id=producer) is ErrorCode.NONE
        assert committed_offset(shard, require_stable=True).error is ErrorCode.UNSTABLE_OFFSET_COMMIT
        shard.shard.replay_end_of_transaction(producer, committed=committed)
        assert (
            committed_offset(shard, require_stable=True).error,
            committed_offset(shard, require_stable=True).offset,
        ) == (ErrorCode.NONE, expected)


def test_an_offset_of_a_transaction_is_unstable_before_it_is_replicated(shard):
    shard.log.hold()
    reply = shard.commit_later(offset=5, producer_id=7)
    assert reply.body is None
    assert committed_offset(shard, require_stable=True).error is ErrorCode.UNSTABLE_OFFSET_COMMIT, (
        "who begins at the old offset now would repeat it"
    )
    shard.log.release()
    assert shard.answer(reply).error_of(T0) is ErrorCode.NONE
    shard.shard.replay_end_of_transaction(7, committed=True)
    assert committed_offset(shard, require_stable=True).offset == 5


def test_an_offset_of_a_transaction_that_was_not_written_holds_nobody_up(shard):
    shard.log.fail_with = ErrorCode.INVALID_PRODUCER_EPOCH
    assert shard.commit(offset=5, producer_id=7) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert committed_offset(shard, require_stable=True).error is ErrorCode.NONE


def test_a_zombie_of_a_consumer_group_commits_no_offsets_in_a_transaction(shard):
    shard.set_topics(t=1)
    member = shard.enter("m1")
    epoch = member.member_epoch
    in_transaction = {"producer_id": 7, "offset": 5}
    assert shard.commit(member_id="m1", generation=epoch, **in_transaction) is ErrorCode.NONE
    assert shard.commit(member_id="m1", generation=epoch + 1, **in_transaction) is ErrorCode.ILLEGAL_GENERATION
    assert shard.commit(member_id="m9", generation=epoch, **in_transaction) is ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.commit(**in_transaction) is ErrorCode.NONE, "old clients do not say who they are"
