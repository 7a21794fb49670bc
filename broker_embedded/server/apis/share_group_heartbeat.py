"""ShareGroupHeartbeat (key 76), version 1: membership of a share group (KIP-932).

The member chooses its id. The assignor is `simple`; a member has its partitions with its first heartbeat, several
members may have the same. An id of a classic or consumer group is GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_embedded.coordinator.group.heartbeats import HeartbeatRequest, HeartbeatResponse
from broker_embedded.coordinator.group.share.heartbeat import check_request
from broker_embedded.coordinator.runtime.reply import Reply
from broker_embedded.server.handling.group_bodies import heartbeat_body
from broker_embedded.server.handling.replies import response_of
from broker_embedded.server.requests.context import RequestContext, Response
from broker_embedded.server.share.needs import check_enabled
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasGroups, HasMetadata

    class Needs(HasGroups, HasMetadata, Protocol): ...


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    check_enabled(ctx.services.metadata.image)
    wanted = HeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        rack_id=request.rack_id,
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.client_host}",  # as Java prints an address, and so Kafka
        topic_names=None if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names),
    )
    check_request(wanted)
    reply: Reply[HeartbeatResponse] = Reply(heartbeat_body)
    ctx.services.groups.shard_of(request.group_id).share_heartbeat(wanted, reply)
    return response_of(reply)
