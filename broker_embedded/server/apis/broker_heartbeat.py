"""BrokerHeartbeat (key 63), versions 0-1.

Keeps a broker's session, unfences it when it has caught up, fences it on request, and shuts it down in a controlled
way: leaders move first, then the broker may stop. Partitions in log directories that it reports offline get other
leaders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.promises import map_result
from broker_embedded.controller.heartbeats import BrokerHeartbeat, HeartbeatReply
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasController


def handle(ctx: RequestContext[HasController], request: Message) -> Response:
    cordoned = request.cordoned_log_dirs
    heartbeat = BrokerHeartbeat(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        metadata_offset=request.current_metadata_offset,
        want_fence=request.want_fence,
        want_shut_down=request.want_shut_down,
        offline_log_dirs=tuple(request.offline_log_dirs),
        # Null, or a version without the field, which reads as an empty tuple then: the broker says nothing of them.
        cordoned_log_dirs=tuple(cordoned) if isinstance(cordoned, list) else None,
    )
    ctx.services.controller.deaths.on_response(heartbeat.broker_id, ctx.connection)
    return map_result(ctx.services.controller.lives.heartbeat(heartbeat), _answer)


def _answer(reply: HeartbeatReply) -> Body:
    return {
        "error_code": 0,
        "is_caught_up": reply.is_caught_up,
        "is_fenced": reply.is_fenced,
        "should_shut_down": reply.should_shut_down,
    }
