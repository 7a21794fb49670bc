"""SyncGroup: the leader brings the plan, everyone takes their part of it once the log has it."""

from __future__ import annotations

from ottla_wire.protocol import ErrorCode

from .answers import SyncAnswer
from .effects import AnswerRequest, Effect, Store
from .events import Sync
from .group import ClassicGroup, StoringAssignment
from .rebalance import assignment_of, await_sync, hand_out_assignments, rebalance_or_complete_join, reset_assignments
from .states import State


def on_sync(group: ClassicGroup, event: Sync, now_ms: int, out: list[Effect]) -> None:
    error = _check(group, event)
    if error is not ErrorCode.NONE:
        out.append(AnswerRequest(ticket=event.ticket, answer=SyncAnswer(error=error)))
        return
    member = group.members[event.member_id]
    group.pending_sync.discard(event.member_id)
    if group.state is State.STABLE:
        group.reset_session(member, now_ms=now_ms)
        out.append(AnswerRequest(ticket=event.ticket, answer=assignment_of(group, member)))
        return
    await_sync(member, event.ticket, out)
    if group.is_leader(event.member_id) and not _is_storing(group):
        store_id = group.new_store_id(
            StoringAssignment(generation=group.generation, assignments=dict(event.assignments))
        )
        out.append(Store(store_id=store_id, snapshot=group.snapshot(event.assignments)))


def on_assignment_stored(
    group: ClassicGroup, stored: StoringAssignment, error: ErrorCode, now_ms: int, out: list[Effect]
) -> None:
    is_current = group.state is State.COMPLETING_REBALANCE and group.generation == stored.generation
    if not is_current:
        # Somebody joined or left while the log was written: a new generation is on its way.
        return
    if error is ErrorCode.NONE:
        hand_out_assignments(group, stored.assignments, now_ms, out)
    else:
        reset_assignments(group, error, now_ms, out)
        rebalance_or_complete_join(group, now_ms, out)


def _check(group: ClassicGroup, event: Sync) -> ErrorCode:
    error = group.check_generation(event.member_id, event.group_instance_id, event.generation)
    if error is not ErrorCode.NONE:
        return error
    if _differs(event.protocol_type, group.protocol_type) or _differs(event.protocol_name, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is State.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differs(asked: str | None, current: str | None) -> bool:
    """Return whether both are known (SyncGroup 5 and later, KIP-559) and different."""
    return asked is not None and current is not None and asked != current


def _is_storing(group: ClassicGroup) -> bool:
    """Return whether an assignment of this generation is already being written, so that a leader's retry writes no
    second one.
    """
    return any(
        isinstance(storing, StoringAssignment) and storing.generation == group.generation
        for storing in group.storing.values()
    )
