"""ShareGroupDescribe (key 77), version 1: epochs, members and their assignments (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_embedded.coordinator.group.consumer.member import ConsumerMember
from broker_embedded.server.handling.group_bodies import assignment_body, describe_groups
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasGroups, HasMetadata

    class Needs(HasMetadata, HasGroups, Protocol): ...


ASSIGNOR = "simple"


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    return describe_groups(request, lambda group_id: _describe(ctx, group_id), kind="share")


def _describe(ctx: RequestContext[Needs], group_id: str) -> Body | None:
    group = ctx.services.groups.shard_of(group_id).share.get(group_id)
    if group is None:
        return None
    return {
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": ASSIGNOR,
        "members": [_member(ctx, member) for member in group.members.values()],
    }


def _member(ctx: RequestContext[Needs], member: ConsumerMember) -> Body:
    subscription = member.subscription
    return {
        "member_id": member.member_id,
        "rack_id": subscription.rack_id,
        "member_epoch": member.progress.epoch,
        "client_id": subscription.client_id,
        "client_host": subscription.client_host,
        "subscribed_topic_names": sorted(subscription.topic_names),
        "assignment": assignment_body(ctx.services.metadata.image, member.progress.assigned),
    }
