"""`step`: one event in, the effects out. The only function that changes a classic group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .answers import JoinAnswer, SyncAnswer
from .effects import Effect
from .events import Event, Heartbeat, Join, Leave, Stored, Sync, Tick, Unload
from .expiry import on_tick
from .group import ClassicGroup, StoringAssignment, StoringStaticMember
from .heartbeat import on_heartbeat
from .join import on_join, on_static_member_stored
from .leave import on_leave
from .rebalance import answer_join, answer_sync
from .states import State
from .sync import on_assignment_stored, on_sync


def step(group: ClassicGroup, event: Event, now_ms: int) -> list[Effect]:
    """Let `event` happen to `group` at `now_ms` (monotonic milliseconds).

    Deadlines that have passed are looked at by `Tick` alone: between `group.wake_at_ms` and the tick a late member is
    still welcome.
    """
    out: list[Effect] = []
    HANDLERS[type(event)](group, event, now_ms, out)
    return out


def _on_stored(group: ClassicGroup, event: Stored, now_ms: int, out: list[Effect]) -> None:
    stored = group.storing.pop(event.store_id, None)
    if isinstance(stored, StoringAssignment):
        on_assignment_stored(group, stored, event.error, now_ms, out)
    elif isinstance(stored, StoringStaticMember):
        on_static_member_stored(group, stored, event.error, now_ms, out)


def _on_unload(group: ClassicGroup, event: Unload, now_ms: int, out: list[Effect]) -> None:
    for member in group.members.values():
        answer_join(member, JoinAnswer(error=event.error, member_id=member.member_id), out)
        answer_sync(member, SyncAnswer(error=event.error), out)
        member.session_deadline_ms = None
    group.pending_join.clear()
    group.storing.clear()
    group.join_deadline_ms = group.sync_deadline_ms = group.wake_at_ms = None
    group.move_to(State.DEAD)


HANDLERS: dict[type[Any], Callable[[ClassicGroup, Any, int, list[Effect]], None]] = {
    Join: on_join,
    Sync: on_sync,
    Heartbeat: on_heartbeat,
    Leave: on_leave,
    Stored: _on_stored,
    Tick: on_tick,
    Unload: _on_unload,
}
"""event -> handler."""
