"""ConsumerGroupDescribe (key 69), versions 0 to 1: epochs, members, their current and target assignments (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.coordinator.group.consumer.assignment import Assignment, by_topic
from broker_embedded.coordinator.group.consumer.group import ConsumerGroup, ConsumerGroupState
from broker_embedded.coordinator.group.consumer.member import ConsumerMember
from broker_embedded.security.authorized_operations import GROUP_OPERATIONS, NOT_ASKED
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasGroups, HasMetadata

    class Needs(HasMetadata, HasGroups, Protocol): ...


MEMBER_USES_CONSUMER_PROTOCOL = 1


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    groups = [{**_describe(ctx, group_id), "authorized_operations": operations} for group_id in request.group_ids]
    return {"throttle_time_ms": 0, "groups": groups}


def _describe(ctx: RequestContext[Needs], group_id: str) -> Body:
    try:
        group = ctx.services.groups.shard_of(group_id).consumer.get(group_id)
        if group is None:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    except BrokerError as error:
        return {
            "error_code": int(error.code),
            "error_message": error.message or None,
            "group_id": group_id,
            "group_state": ConsumerGroupState.DEAD.value,
            "group_epoch": 0,
            "assignment_epoch": 0,
            "assignor_name": "",
            "members": [],
        }
    return {
        "error_code": 0,
        "error_message": None,
        "group_id": group_id,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor(ctx.services.groups.config().consumer.assignors[0]),
        "members": [_member(ctx, group, member) for member in group.members.values()],
    }


def _member(ctx: RequestContext[Needs], group: ConsumerGroup, member: ConsumerMember) -> Body:
    subscription = member.subscription
    return {
        "member_id": member.member_id,
        "instance_id": subscription.instance_id,
        "rack_id": subscription.rack_id,
        "member_epoch": member.progress.epoch,
        "client_id": subscription.client_id,
        "client_host": subscription.client_host,
        "subscribed_topic_names": sorted(subscription.topic_names),
        "subscribed_topic_regex": subscription.topic_regex,
        "assignment": _assignment(ctx, member.progress.assigned),
        "target_assignment": _assignment(ctx, group.target_of(member)),
        "member_type": MEMBER_USES_CONSUMER_PROTOCOL,
    }


def _assignment(ctx: RequestContext[Needs], assignment: Assignment) -> Body:
    """Return topics that were deleted since have no name and are left out."""
    names = ctx.services.metadata.image.topic_names
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": names[topic_id], "partitions": partitions}
            for topic_id, partitions in by_topic(assignment).items()
            if topic_id in names
        ]
    }
