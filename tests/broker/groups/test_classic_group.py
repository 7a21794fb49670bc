"""The classic group protocol, event by event."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from broker_embedded.coordinator.group.classic import VALID_PREVIOUS, ClassicGroup, Leaving, State
from broker_embedded.coordinator.group.classic.states import may_move
from ottla_wire.protocol import ErrorCode

RANGE = (("range", b"\x00"),)


def test_every_state_but_dead_can_be_left_and_dead_cannot():
    for before, after in itertools.product(State, State):
        if before is State.DEAD:
            assert may_move(before, after) is (after is State.DEAD)
    assert all(
        any(before in VALID_PREVIOUS[after] for after in State if after is not State.DEAD)
        for before in State
        if before is not State.DEAD
    )


# -- joining


def test_the_first_member_leads_generation_one_at_once(driver):
    d = driver()
    answer = d.joined(d.join())
    assert answer.error is ErrorCode.NONE
    assert answer.generation == 1
    assert answer.leader == answer.member_id
    assert [member.member_id for member in answer.members] == [answer.member_id]
    assert answer.protocol_name == "range"
    assert d.group.state is State.COMPLETING_REBALANCE


def test_a_dynamic_member_is_told_its_id_first_and_let_in_with_it(driver):
    d = driver()
    told = d.joined(d.join(known_id=True))
    assert told.error is ErrorCode.MEMBER_ID_REQUIRED
    assert told.member_id
    assert d.group.state is State.EMPTY
    assert d.joined(d.join(told.member_id, known_id=True)).error is ErrorCode.NONE


def test_an_id_that_was_given_out_and_never_used_lapses_after_the_session_timeout(driver):
    d = driver()
    told = d.joined(d.join(known_id=True, session_timeout_ms=6_000))
    d.pass_ms(6_000)
    assert d.joined(d.join(told.member_id, known_id=True)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_nobody_gave_out_is_unknown(driver):
    d = driver()
    assert d.joined(d.join("made-up")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_second_member_waits_until_the_first_joins_again(driver):
    d = driver()
    (first,) = d.stable_with(1)
    second = d.join()
    assert d.is_waiting(second)
    assert d.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    again = d.join(first)
    assert d.joined(again).generation == d.joined(second).generation == 2
    assert len(d.joined(again).members) == 2
    assert d.joined(second).members == ()


def test_a_member_that_does_not_join_again_within_the_rebalance_timeout_is_out(driver):
    d = driver()
    (first,) = d.stable_with(1, session_timeout_ms=200_000)
    second = d.join(session_timeout_ms=200_000)
    d.pass_ms(60_000)
    answer = d.joined(second)
    assert answer.generation == 2
    assert answer.leader == answer.member_id
    assert d.heartbeat(first) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_joined_follower_that_asks_again_is_told_the_current_generation(driver):
    d = driver()
    _, follower = d.stable_with(2)
    answer = d.joined(d.join(follower))
    assert (answer.error, answer.generation, answer.members) == (ErrorCode.NONE, d.group.generation, ())
    assert d.group.state is State.STABLE


def test_a_leader_that_joins_a_stable_group_starts_a_rebalance(driver):
    d = driver()
    leader, _ = d.stable_with(2)
    assert d.is_waiting(d.join(leader))
    assert d.group.state is State.PREPARING_REBALANCE


def test_a_follower_with_another_subscription_starts_a_rebalance(driver):
    d = driver()
    _, follower = d.stable_with(2)
    assert d.is_waiting(d.join(follower, protocols=(("range", b"\x01"),)))


def test_a_protocol_that_not_everybody_supports_is_refused(driver):
    d = driver()
    d.stable_with(1)
    assert d.joined(d.join(protocols=(("sticky", b""),))).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert d.joined(d.join(protocol_type="connect")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_empty_list_of_protocols_is_refused(driver):
    d = driver()
    assert d.joined(d.join(protocols=())).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert d.joined(d.join(protocol_type="")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_that_was_told_its_id_is_let_in_although_all_others_left_meanwhile(driver):
    d = driver()
    (only,) = d.stable_with(1)
    told = d.joined(d.join(known_id=True))
    d.leave(only)
    assert (d.group.state, d.group.members) == (State.PREPARING_REBALANCE, {})
    assert d.joined(d.join(told.member_id, protocols=())).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    answer = d.joined(d.join(told.member_id, known_id=True, protocols=(("sticky", b""),)))
    assert (answer.error, answer.leader) == (ErrorCode.NONE, told.member_id)


def test_members_vote_for_the_protocol_that_most_prefer_among_the_common_ones(driver):
    d = driver()
    (first,) = d.stable_with(1, protocols=(("a", b""), ("b", b"")))
    second = d.join(protocols=(("b", b""), ("a", b"")))
    third = d.join(protocols=(("c", b""), ("b", b""), ("a", b"")))
    d.join(first, protocols=(("a", b""), ("b", b"")))
    assert d.joined(second).protocol_name == d.joined(third).protocol_name == "b"


def test_a_full_group_takes_nobody_more(driver):
    d = driver(max_size=1)
    (member,) = d.stable_with(1)
    refused = d.joined(d.join())
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert d.heartbeat(member) is ErrorCode.NONE


def test_with_an_initial_delay_members_that_arrive_together_share_the_first_generation(driver):
    d = driver(initial_rebalance_delay_ms=3_000)
    first = d.join()
    d.pass_ms(2_000)
    second = d.join()
    assert d.is_waiting(first)
    d.pass_ms(1_000)
    assert d.is_waiting(first), "the delay is extended while members arrive"
    d.pass_ms(3_000)
    assert d.joined(first).generation == d.joined(second).generation == 1


def test_the_initial_delay_is_not_extended_beyond_the_rebalance_timeout(driver):
    d = driver(initial_rebalance_delay_ms=3_000)
    first = d.join(rebalance_timeout_ms=7_000)
    for _ in range(6):
        d.pass_ms(1_000)
        d.join(rebalance_timeout_ms=7_000)
    d.pass_ms(1_000)
    d.join(rebalance_timeout_ms=7_000)
    d.pass_ms(2_000)
    assert d.joined(first).generation == 1


def test_a_join_sent_again_answers_the_abandoned_one(driver):
    d = driver()
    (first,) = d.stable_with(1)
    second_id = d.joined(d.join(known_id=True)).member_id
    abandoned = d.join(second_id)
    retried = d.join(second_id)
    assert d.joined(abandoned).error is ErrorCode.REBALANCE_IN_PROGRESS
    d.join(first)
    assert d.joined(retried).error is ErrorCode.NONE


# -- syncing


def test_followers_get_their_part_when_the_log_has_the_leaders_plan(driver):
    d = driver()
    (first,) = d.stable_with(1)
    second = d.join()
    d.join(first)
    second_id = d.joined(second).member_id
    d.hold_stores = True
    early = d.sync(second_id)
    plan = d.sync(first, assignments={first: b"1", second_id: b"2"})
    assert d.is_waiting(early)
    assert d.is_waiting(plan)
    d.release_stores()
    assert d.synced(early).assignment == b"2"
    assert d.synced(plan).assignment == b"1"
    assert d.group.state is State.STABLE


def test_the_stored_generation_holds_the_plan(driver):
    d = driver()
    ids = d.stable_with(2)
    stored = d.stores[-1].snapshot
    assert stored.generation == 2
    assert {member.member_id: member.assignment for member in stored.members} == {one: one.encode() for one in ids}
    assert stored.leader == ids[0]


def test_a_member_that_the_plan_forgot_gets_an_empty_assignment(driver):
    d = driver()
    member = d.joined(d.join()).member_id
    assert d.synced(d.sync(member, assignments={"somebody else": b"x"})).assignment == b""


def test_a_sync_after_the_group_is_stable_repeats_the_assignment(driver):
    d = driver()
    (member,) = d.stable_with(1)
    assert d.synced(d.sync(member)).assignment == member.encode()


def test_a_plan_of_an_older_generation_is_refused(driver):
    d = driver()
    (member,) = d.stable_with(1)
    assert d.synced(d.sync(member, generation=0)).error is ErrorCode.ILLEGAL_GENERATION


def test_a_sync_during_a_rebalance_is_told_to_join(driver):
    d = driver()
    (member,) = d.stable_with(1)
    d.join()
    assert d.synced(d.sync(member)).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_sync_that_names_another_protocol_is_refused(driver):
    d = driver()
    (member,) = d.stable_with(1)
    assert d.synced(d.sync(member, protocol_name="sticky")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert d.synced(d.sync(member, protocol_type="connect")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert d.synced(d.sync(member, protocol_name="range", protocol_type="consumer")).error is ErrorCode.NONE


def test_a_member_that_joins_while_the_plan_is_being_stored_cancels_the_plan(driver):
    d = driver()
    member = d.joined(d.join()).member_id
    d.hold_stores = True
    waiting = d.sync(member, assignments={member: b"1"})
    newcomer = d.join()
    assert d.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    d.release_stores()
    assert d.group.state is State.PREPARING_REBALANCE
    d.join(member)
    assert d.joined(newcomer).generation == 2


def test_a_plan_that_reaches_the_log_too_late_is_not_handed_out_to_the_next_generation(driver):
    d = driver()
    first = d.joined(d.join()).member_id
    d.hold_stores = True
    d.sync(first, assignments={first: b"old"})
    second = d.join()
    d.join(first)
    assert d.group.generation == 2
    waiting = d.sync(d.joined(second).member_id)
    d.release_stores()
    assert d.is_waiting(waiting)
    assert d.group.state is State.COMPLETING_REBALANCE
    d.hold_stores = False
    d.sync(first, assignments={d.joined(second).member_id: b"new"})
    assert d.synced(waiting).assignment == b"new"


def test_a_plan_that_the_log_refuses_starts_over(driver):
    d = driver()
    member = d.joined(d.join()).member_id
    d.hold_stores = True
    waiting = d.sync(member, assignments={member: b"1"})
    d.release_stores(ErrorCode.NOT_COORDINATOR)
    assert d.synced(waiting).error is ErrorCode.NOT_COORDINATOR
    assert d.group.state is State.PREPARING_REBALANCE


def test_a_leaders_second_sync_does_not_store_a_second_plan(driver):
    d = driver()
    member = d.joined(d.join()).member_id
    d.hold_stores = True
    abandoned = d.sync(member, assignments={member: b"1"})
    retried = d.sync(member, assignments={member: b"2"})
    assert d.synced(abandoned).error is ErrorCode.REBALANCE_IN_PROGRESS
    d.release_stores()
    assert d.synced(retried).assignment == b"1"
    assert len(d.stores) == 1


def test_a_leader_that_never_syncs_is_put_out_and_the_others_go_on(driver):
    d = driver()
    (first,) = d.stable_with(1, session_timeout_ms=500_000)
    second = d.join(session_timeout_ms=500_000)
    d.join(first, session_timeout_ms=500_000)
    second_id = d.joined(second).member_id
    waiting = d.sync(second_id)
    d.pass_ms(60_000)
    assert d.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert d.heartbeat(first) is ErrorCode.UNKNOWN_MEMBER_ID
    assert d.joined(d.join(second_id)).leader == second_id


# -- heartbeats and sessions


def test_a_silent_member_is_put_out_after_its_session_timeout(driver):
    d = driver()
    leader, follower = d.stable_with(2)
    for _ in range(3):
        d.pass_ms(4_000)
        d.heartbeat(leader)
    assert d.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID
    assert d.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_falls_silent_after_the_join_has_one_session_and_not_a_new_members_five_minutes(driver):
    d = driver()
    d.join(session_timeout_ms=10_000)
    d.pass_ms(10_000)
    assert d.group.state is State.EMPTY


def test_the_last_member_that_falls_silent_leaves_an_empty_group_that_is_stored(driver):
    d = driver()
    d.stable_with(1)
    d.pass_ms(10_000)
    assert d.group.state is State.EMPTY
    assert d.stores[-1].snapshot.members == ()
    assert d.stores[-1].snapshot.protocol_type == "consumer"


def test_a_member_whose_join_is_held_is_not_put_out_for_silence(driver):
    d = driver()
    first, second = d.stable_with(2, session_timeout_ms=10_000, rebalance_timeout_ms=60_000)
    waiting = d.join(first, protocols=(("range", b"\x01"),))
    for _ in range(5):
        d.pass_ms(8_000)
        d.heartbeat(second)
    assert d.is_waiting(waiting)
    d.join(second)
    assert d.joined(waiting).error is ErrorCode.NONE


def test_a_heartbeat_of_another_generation_is_refused(driver):
    d = driver()
    (member,) = d.stable_with(1)
    assert d.heartbeat(member, generation=7) is ErrorCode.ILLEGAL_GENERATION


def test_a_new_member_that_gave_up_does_not_hold_the_group_for_ever(driver):
    d = driver()
    (first,) = d.stable_with(1, session_timeout_ms=600_000, rebalance_timeout_ms=900_000)
    ghost = d.join(session_timeout_ms=600_000, rebalance_timeout_ms=900_000)
    d.pass_ms(300_000)
    assert d.joined(ghost).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert set(d.group.members) == {first}


# -- leaving


def test_a_member_that_leaves_starts_a_rebalance_of_the_others(driver):
    d = driver()
    leader, follower = d.stable_with(2)
    assert d.leave(leader).members[0].error is ErrorCode.NONE
    assert d.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    assert d.joined(d.join(follower)).leader == follower


def test_members_that_leave_together_cause_one_rebalance_and_each_gets_its_own_answer(driver):
    d = driver()
    a, b, c = d.stable_with(3)
    generation = d.group.generation
    left = d.leave(a, "unknown", b)
    assert [one.error for one in left.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert d.joined(d.join(c)).generation == generation + 1


def test_the_last_member_that_leaves_empties_the_group(driver):
    d = driver()
    (member,) = d.stable_with(1)
    d.leave(member)
    assert d.group.state is State.EMPTY
    assert d.group.protocol is None
    assert d.group.leader is None


def test_an_operator_removes_a_static_member_by_its_instance_id(driver):
    d = driver()
    d.stable_with(2, instances=True)
    left = d.leave(Leaving(member_id="", group_instance_id="i1"))
    assert left.members[0].error is ErrorCode.NONE
    assert "i1" not in d.group.static_members


def test_a_member_removed_while_it_waits_for_its_assignment_is_answered(driver):
    d = driver()
    (first,) = d.stable_with(1)
    second = d.join()
    d.join(first)
    waiting = d.sync(d.joined(second).member_id)
    d.leave(d.joined(second).member_id)
    assert d.synced(waiting).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_given_out_can_leave_before_it_joined(driver):
    d = driver()
    told = d.joined(d.join(known_id=True)).member_id
    assert d.leave(told).members[0].error is ErrorCode.NONE
    assert not d.group.pending_join


# -- static members


def test_a_restarted_static_member_keeps_its_assignment_without_a_rebalance(driver):
    d = driver()
    leader, follower = d.stable_with(2, instances=True)
    answer = d.joined(d.join(instance="i1"))
    assert answer.error is ErrorCode.NONE
    assert answer.generation == d.group.generation == 2
    assert answer.member_id != follower
    assert d.group.state is State.STABLE
    assert d.synced(d.sync(answer.member_id, instance="i1")).assignment == follower.encode()
    assert d.heartbeat(leader) is ErrorCode.NONE
    assert {member.member_id for member in d.stores[-1].snapshot.members} == {leader, answer.member_id}


def test_the_predecessor_of_a_static_member_is_fenced(driver):
    d = driver()
    _, follower = d.stable_with(2, instances=True)
    d.join(instance="i1")
    assert d.heartbeat(follower, instance="i1") is ErrorCode.FENCED_INSTANCE_ID
    assert d.joined(d.join(follower, instance="i1")).error is ErrorCode.FENCED_INSTANCE_ID
    assert d.leave(Leaving(member_id=follower, group_instance_id="i1")).members[0].error is ErrorCode.FENCED_INSTANCE_ID


def test_a_restarted_static_leader_is_told_to_skip_the_assignment(driver):
    d = driver()
    d.stable_with(2, instances=True)
    answer = d.joined(d.join(instance="i0"))
    assert answer.skip_assignment
    assert answer.leader == answer.member_id
    assert len(answer.members) == 2


def test_an_older_client_that_was_leader_is_told_its_old_id_leads_so_that_it_sends_no_plan(driver):
    d = driver()
    leader, _ = d.stable_with(2, instances=True)
    answer = d.joined(d.join(instance="i0", can_skip=False))
    assert answer.leader == leader
    assert answer.members == ()


def test_a_static_member_that_joins_anew_while_its_first_join_waits_fences_the_first(driver):
    d = driver()
    d.stable_with(1, instances=True)
    first = d.join(instance="new")
    second = d.join(instance="new")
    assert d.joined(first).error is ErrorCode.FENCED_INSTANCE_ID
    assert d.is_waiting(second)


def test_a_static_member_that_takes_over_fences_its_predecessors_wait_for_an_assignment(driver):
    d = driver()
    (leader,) = d.stable_with(1)
    static = d.join(instance="i")
    d.join(leader)
    waiting = d.sync(d.joined(static).member_id, instance="i")
    d.join(instance="i")
    assert d.synced(waiting).error is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_takes_over_during_the_sync_phase_starts_a_rebalance(driver):
    d = driver()
    d.joined(d.join(instance="i0"))
    again = d.join(instance="i0")
    assert d.joined(again).generation == 2


def test_a_static_takeover_that_the_log_refuses_leaves_the_predecessor_in_place(driver):
    d = driver()
    _, follower = d.stable_with(2, instances=True)
    d.hold_stores = True
    refused = d.join(instance="i1")
    d.release_stores(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert d.joined(refused).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert d.heartbeat(follower, instance="i1") is ErrorCode.NONE
    assert d.synced(d.sync(follower, instance="i1")).assignment == follower.encode()


def test_a_static_member_may_stay_away_from_a_rebalance_until_its_session_ends(driver):
    d = driver()
    first, second = d.stable_with(2, instances=True, session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
    waiting = d.join(first, instance="i0", session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
    d.pass_ms(20_000)
    assert {member.member_id for member in d.joined(waiting).members} == {first, second}


# -- the group's end, and its restoration


def test_everybody_who_waits_is_answered_when_the_group_moves_away(driver):
    d = driver()
    (first,) = d.stable_with(1)
    joining = d.join()
    d.unload(ErrorCode.NOT_COORDINATOR)
    assert d.joined(joining).error is ErrorCode.NOT_COORDINATOR
    assert not d.waiting
    assert d.heartbeat(first) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_restored_group_is_stable_and_its_members_go_on_with_heartbeats(driver):
    d = driver()
    ids = d.stable_with(2, instances=True)
    d.group = ClassicGroup.restore("g", d.stores[-1].snapshot, config=d.group.config, now_ms=d.now_ms)
    assert d.group.state is State.STABLE
    assert all(d.heartbeat(one) is ErrorCode.NONE for one in ids)
    assert d.synced(d.sync(ids[1], instance="i1")).assignment == ids[1].encode()


def test_a_restored_group_puts_out_members_that_do_not_come_back(driver):
    d = driver()
    d.stable_with(2)
    d.group = ClassicGroup.restore("g", d.stores[-1].snapshot, config=d.group.config, now_ms=d.now_ms)
    d.pass_ms(10_000)
    assert d.group.state is State.EMPTY


def test_a_restored_empty_group_continues_its_generations(driver):
    d = driver()
    d.leave(*d.stable_with(1))
    generation = d.group.generation
    d.group = ClassicGroup.restore("g", d.stores[-1].snapshot, config=d.group.config, now_ms=d.now_ms)
    assert d.group.is_empty
    assert d.joined(d.join()).generation == generation + 1


# -- offset commits


@pytest.mark.parametrize(
    ("member", "generation", "expected"),
    [
        ("self", "current", ErrorCode.NONE),
        ("self", "older", ErrorCode.ILLEGAL_GENERATION),
        ("somebody", "current", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "none", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_offsets_are_committed_by_members_of_the_current_generation_only(driver, member, generation, expected):
    d = driver()
    (own,) = d.stable_with(1)
    number = {"current": d.group.generation, "older": d.group.generation - 1, "none": -1}[generation]
    assert d.group.check_offset_commit(own if member == "self" else member, None, number) is expected


def test_an_empty_group_takes_offsets_from_anybody_without_a_generation(driver):
    d = driver()
    assert d.group.check_offset_commit("", None, -1) is ErrorCode.NONE


def test_a_commit_between_join_and_sync_is_told_to_wait(driver):
    d = driver()
    member = d.joined(d.join()).member_id
    assert d.group.check_offset_commit(member, None, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_during_the_join_phase_is_allowed_so_that_revoked_partitions_can_be_committed(driver):
    d = driver()
    (member,) = d.stable_with(1)
    d.join()
    assert d.group.check_offset_commit(member, None, d.group.generation) is ErrorCode.NONE


def test_the_documented_table_of_states_is_the_one_that_the_code_uses():
    page = Path(__file__).parents[3] / "docs" / "reference" / "consumer_groups.md"
    rows = re.findall(r"^\| (\w+) \| ([\w, ]+) \|$", page.read_text(), re.MULTILINE)
    documented = {state: previous for state, previous in rows if state in {each.value for each in State}}
    assert documented == {
        state.value: "any" if previous == frozenset(State) else ", ".join(sorted(each.value for each in previous))
        for state, previous in VALID_PREVIOUS.items()
    }
