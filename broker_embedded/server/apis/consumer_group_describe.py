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
    groups, image = ctx.services.groups, ctx.services.metadata.image

    def member_fields(group: ConsumerGroup, member: ConsumerMember) -> Body:
        return {
            "instance_id": member.subscription.instance_id,
            "subscribed_topic_regex": member.subscription.topic_regex,
            "target_assignment": assignment_body(image, group.target_of(member)),
            "member_type": MEMBER_USES_CONSUMER_PROTOCOL,
        }

    return describe_groups(
        ctx,
        request,
        lambda group_id: groups.shard_of(group_id).consumer,
        assignor=lambda group: group.assignor(groups.config().consumer.assignors[0]),
        member_fields=member_fields,
    )
