"""Heartbeat (key 12), versions 0 to 4: a member of a classic group is alive, and learns whether to join again.

While the group is being loaded, the response has no error, as in Kafka: the member need not look for another
coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.coordinator.group.classic import ClassicHeartbeatAnswer, Heartbeat
from broker_embedded.coordinator.runtime.reply import Reply
from broker_embedded.server.handling.replies import response_of
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasGroups


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return _body(ClassicHeartbeatAnswer(error=ErrorCode.NONE if is_loading else error.code))


def handle(ctx: RequestContext[HasGroups], request: Message) -> Response:
    shard = ctx.services.groups.shard_of(request.group_id)
    reply: Reply[ClassicHeartbeatAnswer] = Reply(_body)
    event = Heartbeat(
        ticket=reply,
        member_id=request.member_id,
        generation=request.generation_id,
        group_instance_id=request.group_instance_id,
    )
    shard.heartbeat(request.group_id, event, reply)
    return response_of(reply)


def _body(answer: ClassicHeartbeatAnswer) -> Body:
    return {"throttle_time_ms": 0, "error_code": int(answer.error)}
