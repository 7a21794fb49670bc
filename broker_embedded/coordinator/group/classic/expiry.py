"""Time: sessions that ran out, ids that were never used, joins and syncs that were waited for long enough."""

from __future__ import annotations

from .effects import Effect
from .events import Tick
from .group import ClassicGroup
from .rebalance import complete_join, prepare_rebalance, rebalance_or_complete_join, remove_member
from .states import State


def on_tick(group: ClassicGroup, event: Tick, now_ms: int, out: list[Effect]) -> None:
    _expire_pending_joins(group, now_ms, out)
    _expire_sessions(group, now_ms, out)
    _expire_join_phase(group, now_ms, out)
    _expire_sync_phase(group, now_ms, out)
    group.wake_at_ms = group.earliest_deadline_ms()


def _expire_pending_joins(group: ClassicGroup, now_ms: int, out: list[Effect]) -> None:
    lapsed = [member_id for member_id, deadline_ms in group.pending_join.items() if deadline_ms <= now_ms]
    for member_id in lapsed:
        group.discard(member_id)
    if lapsed:
        _complete_join_if_nobody_is_missing(group, now_ms, out)


def _expire_sessions(group: ClassicGroup, now_ms: int, out: list[Effect]) -> None:
    expired = []
    for member in group.members.values():
        if member.session_deadline_ms is None or member.session_deadline_ms > now_ms:
            continue
        if member.is_alive_by_waiting:
            # Its next session starts with our answer.
            member.session_deadline_ms = None
        else:
            expired.append(member.member_id)
    for member_id in expired:
        remove_member(group, member_id, out)
    if not expired:
        return
    if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
        rebalance_or_complete_join(group, now_ms, out)
    else:
        _complete_join_if_nobody_is_missing(group, now_ms, out)


def _expire_join_phase(group: ClassicGroup, now_ms: int, out: list[Effect]) -> None:
    if group.join_deadline_ms is None or group.join_deadline_ms > now_ms:
        return
    group.join_deadline_ms = None
    if group.state is not State.PREPARING_REBALANCE:
        return
    if group.is_initial_rebalance and group.new_member_added and group.initial_delay_remaining_ms > 0:
        # Members still arrive: wait once more, within the rebalance timeout.
        group.new_member_added = False
        delay_ms = min(group.config.initial_rebalance_delay_ms, group.initial_delay_remaining_ms)
        group.initial_delay_remaining_ms = max(group.initial_delay_remaining_ms - group.initial_delay_ms, 0)
        group.initial_delay_ms = delay_ms
        group.set_join_deadline(now_ms + delay_ms)
    else:
        complete_join(group, now_ms, out)


def _expire_sync_phase(group: ClassicGroup, now_ms: int, out: list[Effect]) -> None:
    if group.sync_deadline_ms is None or group.sync_deadline_ms > now_ms:
        return
    group.sync_deadline_ms = None
    is_syncing = group.state in (State.COMPLETING_REBALANCE, State.STABLE)
    if not is_syncing or not group.pending_sync:
        return
    for member_id in tuple(group.pending_sync):
        remove_member(group, member_id, out)
    prepare_rebalance(group, now_ms, out)


def _complete_join_if_nobody_is_missing(group: ClassicGroup, now_ms: int, out: list[Effect]) -> None:
    if group.state is State.PREPARING_REBALANCE and group.has_everyone_joined:
        complete_join(group, now_ms, out)
