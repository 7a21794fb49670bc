"""Bodies that the APIs of KIP-848 groups and of share groups have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from broker_embedded.common.errors import BrokerError
from broker_embedded.coordinator.group.consumer.assignment import Assignment, by_topic, to_message
from broker_embedded.coordinator.group.heartbeats import HeartbeatResponse
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.security.authorized_operations import GROUP_OPERATIONS, NOT_ASKED
from broker_embedded.server.requests.context import Body, RequestContext
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.coordinator.group.consumer.member import ConsumerMember
    from broker_embedded.coordinator.group.timed_group import TimedGroup
    from broker_embedded.coordinator.group.timed_groups import TimedGroups
    from broker_embedded.server.requests.services import HasMetadata

T = TypeVar("T", bound="TimedGroup[Any]")


def heartbeat_body(response: HeartbeatResponse) -> Body:
    assignment = None if response.assignment is None else {"topic_partitions": to_message(response.assignment)}
    return {
        "throttle_time_ms": 0,
        "error_code": int(response.error),
        "error_message": response.error_message,
        "member_id": response.member_id,
        "member_epoch": response.member_epoch,
        "heartbeat_interval_ms": response.heartbeat_interval_ms,
        "assignment": assignment,
    }


def describe_groups(
    ctx: RequestContext[HasMetadata],
    request: Message,
    groups_of: Callable[[str], TimedGroups[T, Any]],
    *,
    assignor: Callable[[T], str],
    member_fields: Callable[[T, ConsumerMember], Body] = lambda group, member: {},
) -> Body:
    """Return the response to a description of groups. `groups_of`: those among which a group is, or BrokerError.
    `member_fields`: what only one type of groups says of members."""
    image = ctx.services.metadata.image

    def described(group_id: str) -> Body:
        try:
            groups = groups_of(group_id)
            group = groups.get(group_id)
            if group is None:
                raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {groups.kind} group.")
        except BrokerError as error:
            return undescribed_group(group_id, error, state="Dead")
        return {
            "error_code": 0,
            "error_message": None,
            "group_id": group_id,
            "group_state": group.state.value,
            "group_epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
            "assignor_name": assignor(group),
            "members": [{**member_body(member), **member_fields(group, member)} for member in group.members.values()],
        }

    def member_body(member: ConsumerMember) -> Body:
        subscription = member.subscription
        return {
            "member_id": member.member_id,
            "rack_id": subscription.rack_id,
            "member_epoch": member.progress.epoch,
            "client_id": subscription.client_id,
            "client_host": subscription.client_host,
            "subscribed_topic_names": sorted(subscription.topic_names),
            "assignment": assignment_body(image, member.progress.assigned),
        }

    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    groups = [{**described(group_id), "authorized_operations": operations} for group_id in request.group_ids]
    return {"throttle_time_ms": 0, "groups": groups}


def undescribed_group(group_id: str, error: BrokerError, *, state: str) -> Body:
    return {
        "error_code": int(error.code),
        "error_message": error.message or None,
        "group_id": group_id,
        "group_state": state,
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
    }


def assignment_body(image: ClusterImage, assignment: Assignment) -> dict[str, Any]:
    """Return the partitions by topic. Topics that were deleted since have no name and are left out."""
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": image.topic_names[topic_id], "partitions": partitions}
            for topic_id, partitions in by_topic(assignment).items()
            if topic_id in image.topic_names
        ]
    }
