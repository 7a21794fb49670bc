"""JoinGroup: which members are admitted, under which id.

no id, dynamic    told an id first and asked to come again with it (KIP-394); before version 4, let in at once
no id, static     a new instance, or one that takes over its predecessor's place without a rebalance (KIP-345)
an id given out   let in
a current id      joins the rebalance, starts one if something changed, else is told the current generation
anything else     unknown or fenced
"""

from __future__ import annotations

from dataclasses import replace

from ottla_wire.protocol import ErrorCode

from .answers import UNKNOWN_MEMBER_ID, JoinAnswer, SyncAnswer
from .effects import AnswerRequest, Effect, Store
from .events import Join
from .group import NEW_MEMBER_JOIN_TIMEOUT_MS, ClassicGroup, StoringStaticMember
from .member import ClassicMember
from .rebalance import (
    answer_join,
    answer_sync,
    await_join,
    current_generation,
    prepare_rebalance,
    rebalance_or_complete_join,
    remove_member,
)
from .states import State


def on_join(group: ClassicGroup, event: Join, now_ms: int, out: list[Effect]) -> None:
    names = {name for name, _ in event.protocols}
    if group.state is State.DEAD:
        _refuse(event, ErrorCode.COORDINATOR_NOT_AVAILABLE, out)
    elif not group.accepts(event.member_id):
        remove_member(group, event.member_id, out)
        _refuse(event, ErrorCode.GROUP_MAX_SIZE_REACHED, out, member_id=UNKNOWN_MEMBER_ID)
    elif not group.supports(event.protocol_type, names):
        _refuse(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, out)
    elif event.member_id != UNKNOWN_MEMBER_ID:
        _join_known(group, event, now_ms, out)
    elif event.group_instance_id is not None:
        _join_new_static(group, event, now_ms, out)
    elif event.requires_known_member_id:
        group.add_pending_join(event.new_member_id, now_ms + event.session_timeout_ms)
        _refuse(event, ErrorCode.MEMBER_ID_REQUIRED, out, member_id=event.new_member_id)
    else:
        _add(group, event, event.new_member_id, now_ms, out)


def _join_new_static(group: ClassicGroup, event: Join, now_ms: int, out: list[Effect]) -> None:
    assert event.group_instance_id is not None
    predecessor = group.static_members.get(event.group_instance_id)
    if predecessor is None:
        _add(group, event, event.new_member_id, now_ms, out)
    else:
        _replace_static(group, event, group.members[predecessor], now_ms, out)


def _join_known(group: ClassicGroup, event: Join, now_ms: int, out: list[Effect]) -> None:
    if event.member_id in group.pending_join:
        if event.group_instance_id is not None:
            # Ids are given out to dynamic members only.
            _refuse(event, ErrorCode.UNKNOWN_MEMBER_ID, out)
        else:
            _add(group, event, event.member_id, now_ms, out)
        return
    error = group.check_member(event.member_id, event.group_instance_id)
    if error is not ErrorCode.NONE:
        _refuse(event, error, out)
        return
    member = group.members[event.member_id]
    if _starts_rebalance(group, member, event):
        member.accept(event)
        await_join(member, event.ticket, out)
        rebalance_or_complete_join(group, now_ms, out)
    else:
        # It did not get our first answer, or only asks: the current generation stands.
        group.reset_session(member, now_ms=now_ms)
        out.append(AnswerRequest(ticket=event.ticket, answer=current_generation(group, member)))


def _starts_rebalance(group: ClassicGroup, member: ClassicMember, event: Join) -> bool:
    if group.state is State.PREPARING_REBALANCE:
        return True
    has_changed = member.protocols != event.protocols
    # A leader that joins a stable group has seen something its metadata does not show, such as new partitions.
    is_leader_of_stable = group.state is State.STABLE and group.is_leader(member.member_id)
    return has_changed or is_leader_of_stable


def _add(group: ClassicGroup, event: Join, member_id: str, now_ms: int, out: list[Effect]) -> None:
    member = ClassicMember(
        member_id=member_id,
        group_instance_id=event.group_instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        protocols=event.protocols,
    )
    member.is_new = True
    group.new_member_added = group.is_initial_rebalance
    group.add(member, event.protocol_type)
    await_join(member, event.ticket, out)
    group.reset_session(member, now_ms=now_ms, timeout_ms=NEW_MEMBER_JOIN_TIMEOUT_MS)
    rebalance_or_complete_join(group, now_ms, out)


def _replace_static(group: ClassicGroup, event: Join, old: ClassicMember, now_ms: int, out: list[Effect]) -> None:
    """Replace a restarted static member, assignment included. Requests with the old id are fenced."""
    fenced = ErrorCode.FENCED_INSTANCE_ID
    answer_join(old, JoinAnswer(error=fenced, member_id=old.member_id), out)
    answer_sync(old, SyncAnswer(error=fenced), out)
    leader_before = group.leader
    member = _take_over(group, old, event.new_member_id)
    member.accept(event)
    await_join(member, event.ticket, out)
    group.reset_session(member, now_ms=now_ms)
    if group.state is State.COMPLETING_REBALANCE:
        # The leader may be computing a plan for the old id; the new one would come away with nothing.
        prepare_rebalance(group, now_ms, out)
    elif group.state is State.STABLE and group.select_protocol() == group.protocol:
        # Nothing changed for the others: no rebalance, the log only learns the new id.
        store_id = group.new_store_id(
            StoringStaticMember(join=event, old_member=old, new_member_id=member.member_id, leader_before=leader_before)
        )
        out.append(Store(store_id=store_id, snapshot=group.snapshot()))
    else:
        rebalance_or_complete_join(group, now_ms, out)


def _take_over(group: ClassicGroup, old: ClassicMember, new_member_id: str) -> ClassicMember:
    assert old.group_instance_id is not None
    member = ClassicMember(
        member_id=new_member_id,
        group_instance_id=old.group_instance_id,
        client_id=old.client_id,
        client_host=old.client_host,
        session_timeout_ms=old.session_timeout_ms,
        rebalance_timeout_ms=old.rebalance_timeout_ms,
        protocols=old.protocols,
        assignment=old.assignment,
    )
    was_leader = group.is_leader(old.member_id)
    was_pending_sync = old.member_id in group.pending_sync
    group.discard(old.member_id)
    group.members[new_member_id] = member
    group.static_members[old.group_instance_id] = new_member_id
    if was_leader or group.leader is None:
        group.leader = new_member_id
    if was_pending_sync:
        group.pending_sync.add(new_member_id)
    return member


def on_static_member_stored(
    group: ClassicGroup, stored: StoringStaticMember, error: ErrorCode, now_ms: int, out: list[Effect]
) -> None:
    """Respond once the new id of a restarted static member is durable or failed (`error`). If the group has moved on,
    the rebalance responds.
    """
    member = group.members.get(stored.new_member_id)
    if member is None or group.state is not State.STABLE or member.awaiting_join != stored.join.ticket:
        return
    if error is not ErrorCode.NONE:
        answer_join(member, JoinAnswer(error=error), out)
        old = _take_over(group, member, stored.old_member.member_id)
        old.protocols = stored.old_member.protocols
        old.session_timeout_ms = stored.old_member.session_timeout_ms
        old.rebalance_timeout_ms = stored.old_member.rebalance_timeout_ms
        group.reset_session(old, now_ms=now_ms)
        return
    answer = current_generation(group, member)
    if stored.join.can_skip_assignment:
        answer = replace(answer, skip_assignment=group.is_leader(member.member_id))
    else:
        # An older client that finds itself the leader would compute and send a plan nobody asked for.
        answer = replace(answer, leader=stored.leader_before or "", members=())
    answer_join(member, answer, out)
    group.reset_session(member, now_ms=now_ms)


def _refuse(event: Join, error: ErrorCode, out: list[Effect], *, member_id: str | None = None) -> None:
    answer = JoinAnswer(error=error, member_id=event.member_id if member_id is None else member_id)
    out.append(AnswerRequest(ticket=event.ticket, answer=answer))
