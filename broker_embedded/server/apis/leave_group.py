"""LeaveGroup (key 13), versions 0 to 5: a member leaves, or several are removed at once (3 and later, KIP-345).

Before version 3 there is one member, and its error is the top-level one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.coordinator.group.classic import Leave, LeaveAnswer, Leaving
from broker_embedded.coordinator.runtime.reply import Reply
from broker_embedded.server.handling.replies import response_of
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasGroups

FIRST_WITH_BATCHES = 3


def handle(ctx: RequestContext[HasGroups], request: Message) -> Response:
    shard = ctx.services.groups.shard_of(request.group_id)
    if ctx.api_version >= FIRST_WITH_BATCHES:
        leaving = tuple(
            Leaving(member_id=member.member_id, group_instance_id=member.group_instance_id, reason=member.reason or "")
            for member in request.members
        )
        reply: Reply[LeaveAnswer] = Reply(_body)
    else:
        leaving = (Leaving(member_id=request.member_id),)
        reply = Reply(_body_of_one)
    shard.leave(request.group_id, Leave(ticket=reply, members=leaving), reply)
    return response_of(reply)


def _body(answer: LeaveAnswer) -> Body:
    return {
        "throttle_time_ms": 0,
        "error_code": int(answer.error),
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "error_code": int(member.error),
            }
            for member in answer.members
        ],
    }


def _body_of_one(answer: LeaveAnswer) -> Body:
    error = answer.error if answer.error is not ErrorCode.NONE else answer.members[0].error
    return {"throttle_time_ms": 0, "error_code": int(error)}
