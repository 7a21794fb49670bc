"""ConsumerGroupDescribe (key 69), versions 0 to 1: epochs, members, their current and target assignments (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_embedded.coordinator.group.consumer.group import ConsumerGroup
from broker_embedded.coordinator.group.consumer.member import ConsumerMember
from broker_embedded.server.handling.group_bodies import assignment_body, describe_groups
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasGroups, HasMetadata

    class Needs(HasMetadata, HasGroups, Protocol): ...


MEMBER_USES_CONSUMER_PROTOCOL = 1


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    return describe_groups(request, lambda group_id: _describe(ctx, group_id), kind="consumer")


def _describe(ctx: RequestContext[Needs], group_id: str) -> Body | None:
    group = ctx.services.groups.shard_of(group_id).consumer.get(group_id)
    if group is None:
        return None
    return {
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor(ctx.services.groups.config().consumer.assignors[0]),
        "members": [_member(ctx, group, member) for member in group.members.values()],
    }


def _member(ctx: RequestContext[Needs], group: ConsumerGroup, member: ConsumerMember) -> Body:
    subscription, image = member.subscription, ctx.services.metadata.image
    return {
        "member_id": member.member_id,
        "instance_id": subscription.instance_id,
        "rack_id": subscription.rack_id,
        "member_epoch": member.progress.epoch,
        "client_id": subscription.client_id,
        "client_host": subscription.client_host,
        "subscribed_topic_names": sorted(subscription.topic_names),
        "subscribed_topic_regex": subscription.topic_regex,
        "assignment": assignment_body(image, member.progress.assigned),
        "target_assignment": assignment_body(image, group.target_of(member)),
        "member_type": MEMBER_USES_CONSUMER_PROTOCOL,
    }
