"""SyncGroup (key 14), versions 0 to 5: the leader sends the assignment, and each member gets its part.

The response is sent when the log has the leader's assignment. From version 5 on, protocol type and name must be the
group's (KIP-559).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.coordinator.group.classic import Sync, SyncAnswer
from broker_embedded.coordinator.runtime.reply import Reply
from broker_embedded.server.handling.replies import response_of
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasGroups


def handle(ctx: RequestContext[HasGroups], request: Message) -> Response:
    shard = ctx.services.groups.shard_of(request.group_id)
    reply: Reply[SyncAnswer] = Reply(_body)
    event = Sync(
        ticket=reply,
        member_id=request.member_id,
        generation=request.generation_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={each.member_id: bytes(each.assignment) for each in request.assignments},
    )
    shard.sync(request.group_id, event, reply)
    return response_of(reply)


def _body(answer: SyncAnswer) -> Body:
    return {
        "throttle_time_ms": 0,
        "error_code": int(answer.error),
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol_name,
        "assignment": answer.assignment,
    }
