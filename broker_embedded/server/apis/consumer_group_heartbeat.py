"""ConsumerGroupHeartbeat (key 68), versions 0 to 1: the one request of KIP-848's protocol.

Server-side assignors `uniform` and `range`, static members, subscription by pattern (1; Python's syntax where Kafka has
RE2J's, and like it without backtracking). From version 1 on the client chooses its member id. Not done: members of the
classic protocol in the same group (online migration).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.coordinator.group.consumer.assignment import of_message
from broker_embedded.coordinator.group.consumer.heartbeat import check_request
from broker_embedded.coordinator.group.consumer.member import JOIN_EPOCH
from broker_embedded.coordinator.group.heartbeats import HeartbeatRequest, HeartbeatResponse
from broker_embedded.coordinator.runtime.reply import Reply
from broker_embedded.server.handling.group_bodies import heartbeat_body
from broker_embedded.server.handling.replies import response_of
from broker_embedded.server.requests.context import RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasAuthorization, HasConfig, HasGroups

    class Needs(HasConfig, HasGroups, HasAuthorization, Protocol): ...


FIRST_WITH_CLIENT_MEMBER_IDS = 1


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    coordinator = ctx.services.groups
    if "consumer" not in ctx.services.config.group_coordinator_rebalance_protocols:
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, "group.coordinator.rebalance.protocols excludes 'consumer'")
    chooses_id = ctx.api_version >= FIRST_WITH_CLIENT_MEMBER_IDS
    wanted = HeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.client_host}",  # as Java prints an address, and so Kafka
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=None if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names),
        topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=None if request.topic_partitions is None else of_message(request.topic_partitions),
        may_describe=_may_describe(ctx),
    )
    check_request(wanted, coordinator.config().consumer, requires_member_id=chooses_id)
    if wanted.member_epoch == JOIN_EPOCH and not wanted.member_id:
        wanted = coordinator.with_member_id(wanted)
    reply: Reply[HeartbeatResponse] = Reply(heartbeat_body)
    coordinator.shard_of(request.group_id).consumer_heartbeat(wanted, reply)
    return response_of(reply)


def _may_describe(ctx: RequestContext[Needs]) -> Callable[[str], bool] | None:
    rights = ctx.rights
    if rights is None:
        return None
    from broker_embedded.metadata.acls import AclOperation, AclResource  # where there is an authorizer

    return lambda name: rights.allows(AclOperation.DESCRIBE, AclResource.TOPIC, name)
