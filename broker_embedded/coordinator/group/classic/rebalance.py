"""The transitions that several events share: start a rebalance, complete the join phase, hand out the assignment."""

from __future__ import annotations

from collections.abc import Mapping

from ottla_wire.protocol import ErrorCode

from .answers import NO_ASSIGNMENT, JoinAnswer, SyncAnswer
from .effects import AnswerRequest, Effect, Store
from .events import Ticket
from .group import ClassicGroup, StoringEmptyGroup
from .member import ClassicMember
from .states import State


def rebalance_or_complete_join(group: ClassicGroup, now_ms: int, out: list[Effect]) -> None:
    """Start a rebalance, or complete the join phase: something changed that the members must agree on again."""
    if group.can_rebalance:
        prepare_rebalance(group, now_ms, out)
    else:
        maybe_complete_join(group, now_ms, out)


def prepare_rebalance(group: ClassicGroup, now_ms: int, out: list[Effect]) -> None:
    """Ask everyone to join again: members learn it from their next heartbeat, or from the sync they wait for."""
    if group.state is State.COMPLETING_REBALANCE:
        reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms, out)
    group.pending_sync.clear()
    group.sync_deadline_ms = None
    group.is_initial_rebalance = group.is_empty
    group.move_to(State.PREPARING_REBALANCE)
    if not group.is_initial_rebalance:
        if group.has_everyone_joined:
            complete_join(group, now_ms, out)
        else:
            group.set_join_deadline(now_ms + group.rebalance_timeout_ms)
        return
    delay_ms = group.config.initial_rebalance_delay_ms
    if delay_ms <= 0:
        complete_join(group, now_ms, out)
        return
    group.new_member_added = False
    group.initial_delay_ms = delay_ms
    group.initial_delay_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    group.set_join_deadline(now_ms + delay_ms)


def maybe_complete_join(group: ClassicGroup, now_ms: int, out: list[Effect]) -> None:
    """Complete the join once all members have joined. An initial rebalance waits for its delay instead."""
    is_joining = group.state is State.PREPARING_REBALANCE and not group.is_initial_rebalance
    if is_joining and group.has_everyone_joined:
        complete_join(group, now_ms, out)


def complete_join(group: ClassicGroup, now_ms: int, out: list[Effect]) -> None:
    """Start the next generation with the joined members. Other dynamic members are removed; static ones stay until
    their session expires (KIP-345).
    """
    group.join_deadline_ms = None
    missing = [member for member in group.members.values() if not member.is_awaiting_join and not member.is_static]
    for member in missing:
        remove_member(group, member.member_id, out)
    if group.members and not group.elect_joined_leader():
        # Only silent static members are left. Wait until one joins or their sessions end.
        group.set_join_deadline(now_ms + group.rebalance_timeout_ms)
        return
    group.begin_generation()
    if group.is_empty:
        out.append(Store(store_id=group.new_store_id(StoringEmptyGroup()), snapshot=group.snapshot()))
        return
    for member in group.members.values():
        answer_join(member, current_generation(group, member), out)
        group.reset_session(member, now_ms=now_ms)
        member.is_new = False
        group.pending_sync.add(member.member_id)
    group.set_sync_deadline(now_ms + group.rebalance_timeout_ms)


def hand_out_assignments(group: ClassicGroup, assignments: Mapping[str, bytes], now_ms: int, out: list[Effect]) -> None:
    """Respond with the durable assignment: the group is stable. A member without one gets an empty assignment."""
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, NO_ASSIGNMENT)
        if answer_sync(member, assignment_of(group, member), out):
            # Its session may have run out while we held its request; the count starts again.
            group.reset_session(member, now_ms=now_ms)
    group.move_to(State.STABLE)


def reset_assignments(group: ClassicGroup, error: ErrorCode, now_ms: int, out: list[Effect]) -> None:
    """Fail this generation's assignment: waiting members get `error`."""
    for member in group.members.values():
        member.assignment = NO_ASSIGNMENT
        if answer_sync(member, SyncAnswer(error=error), out):
            group.reset_session(member, now_ms=now_ms)


def remove_member(group: ClassicGroup, member_id: str, out: list[Effect]) -> None:
    """Remove a member. Its waiting request fails with UNKNOWN_MEMBER_ID, after which an active client rejoins."""
    member = group.discard(member_id)
    if member is not None:
        answer_join(member, JoinAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID), out)
        answer_sync(member, SyncAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID), out)


def await_join(member: ClassicMember, ticket: Ticket, out: list[Effect]) -> None:
    """Hold the member's JoinGroup. An earlier one that it gave up on is answered first."""
    answer_join(member, JoinAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id), out)
    member.awaiting_join = ticket


def await_sync(member: ClassicMember, ticket: Ticket, out: list[Effect]) -> None:
    """Hold the member's SyncGroup. An earlier one that it gave up on is answered first."""
    answer_sync(member, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS), out)
    member.awaiting_sync = ticket


def answer_join(member: ClassicMember, answer: JoinAnswer, out: list[Effect]) -> bool:
    """Answer the JoinGroup that the member waits for, if it does."""
    if member.awaiting_join is None:
        return False
    out.append(AnswerRequest(ticket=member.awaiting_join, answer=answer))
    member.awaiting_join = None
    return True


def answer_sync(member: ClassicMember, answer: SyncAnswer, out: list[Effect]) -> bool:
    """Answer the SyncGroup that the member waits for, if it does."""
    if member.awaiting_sync is None:
        return False
    out.append(AnswerRequest(ticket=member.awaiting_sync, answer=answer))
    member.awaiting_sync = None
    return True


def current_generation(group: ClassicGroup, member: ClassicMember) -> JoinAnswer:
    """Return the join response for a member of this generation."""
    return JoinAnswer(
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        members=group.joined_members() if group.is_leader(member.member_id) else (),
    )


def assignment_of(group: ClassicGroup, member: ClassicMember) -> SyncAnswer:
    return SyncAnswer(protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment)
