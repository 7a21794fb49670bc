"""LeaveGroup: one member leaves, or an operator removes several at once (KIP-345). One rebalance follows for all."""

from __future__ import annotations

from ottla_wire.protocol import ErrorCode

from .answers import UNKNOWN_MEMBER_ID, LeaveAnswer, LeftMember
from .effects import AnswerRequest, Effect
from .events import Leave, Leaving
from .group import ClassicGroup
from .rebalance import complete_join, maybe_complete_join, rebalance_or_complete_join, remove_member
from .states import State


def on_leave(group: ClassicGroup, event: Leave, now_ms: int, out: list[Effect]) -> None:
    if group.state is State.DEAD:
        out.append(AnswerRequest(ticket=event.ticket, answer=LeaveAnswer(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)))
        return
    left = tuple(
        LeftMember(
            member_id=leaving.member_id,
            group_instance_id=leaving.group_instance_id,
            error=_remove(group, leaving, out),
        )
        for leaving in event.members
    )
    out.append(AnswerRequest(ticket=event.ticket, answer=LeaveAnswer(members=left)))
    if not any(member.error is ErrorCode.NONE for member in left):
        return
    if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
        rebalance_or_complete_join(group, now_ms, out)
    elif group.is_initial_rebalance and not group.members and not group.pending_join:
        # Nobody is left for whom the initial delay could be worth its while.
        complete_join(group, now_ms, out)
    else:
        maybe_complete_join(group, now_ms, out)


def _remove(group: ClassicGroup, leaving: Leaving, out: list[Effect]) -> ErrorCode:
    member_id = leaving.member_id
    if member_id == UNKNOWN_MEMBER_ID:
        by_instance = group.static_members.get(leaving.group_instance_id or "")
        if by_instance is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = by_instance
    elif member_id not in group.pending_join:
        error = group.check_member(member_id, leaving.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
    remove_member(group, member_id, out)
    return ErrorCode.NONE
