"""DescribeGroups (key 15), versions 0 to 6: state, protocol and members of classic groups.

An unknown group is "Dead" without an error before version 6, GROUP_ID_NOT_FOUND from then on (KIP-1043). KIP-848 groups
have their own API, ConsumerGroupDescribe, and are unknown here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.coordinator.group.requests import DescribedGroup
from broker_embedded.security.authorized_operations import GROUP_OPERATIONS, NOT_ASKED
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasGroups

FIRST_WITH_NOT_FOUND = 6


def handle(ctx: RequestContext[HasGroups], request: Message) -> Response:
    return {"throttle_time_ms": 0, "groups": [_body(ctx, request, group_id) for group_id in request.groups]}


def _body(ctx: RequestContext[HasGroups], request: Message, group_id: str) -> Body:
    group = _describe(ctx, group_id)
    is_unknown = group.error is ErrorCode.GROUP_ID_NOT_FOUND
    hides_error = is_unknown and ctx.api_version < FIRST_WITH_NOT_FOUND
    return {
        "error_code": 0 if hides_error else int(group.error),
        "error_message": group.error_message,
        "group_id": group_id,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in group.members
        ],
        "authorized_operations": GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED,
    }


def _describe(ctx: RequestContext[HasGroups], group_id: str) -> DescribedGroup:
    try:
        return ctx.services.groups.shard_of_any(group_id).admin.describe_group(group_id)
    except BrokerError as error:
        return DescribedGroup(group_id=group_id, error=error.code, error_message=error.message)
