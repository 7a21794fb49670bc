"""Heartbeat: a member says that it is alive and learns whether it has to join again."""

from __future__ import annotations

from ottla_wire.protocol import ErrorCode

from .answers import ClassicHeartbeatAnswer
from .effects import AnswerRequest, Effect
from .events import Heartbeat
from .group import ClassicGroup
from .states import State


def on_heartbeat(group: ClassicGroup, event: Heartbeat, now_ms: int, out: list[Effect]) -> None:
    error = group.check_generation(event.member_id, event.group_instance_id, event.generation)
    if error is ErrorCode.NONE:
        group.reset_session(group.members[event.member_id], now_ms=now_ms)
        if group.state is State.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
    out.append(AnswerRequest(ticket=event.ticket, answer=ClassicHeartbeatAnswer(error=error)))
