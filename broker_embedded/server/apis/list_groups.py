"""ListGroups (key 16), versions 0 to 5: the groups that this broker coordinates, by state (4, KIP-518) and type (5,
KIP-848).

Filters ignore case, as Kafka's do; an unknown state or type matches nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.server.requests.context import RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasGroups


def handle(ctx: RequestContext[HasGroups], request: Message) -> Response:
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    return {
        "throttle_time_ms": 0,
        "error_code": 0,
        "groups": [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type,
                "group_state": group.state,
                "group_type": group.group_type,
            }
            for group in ctx.services.groups.list_groups()
            if (not states or group.state.lower() in states) and (not types or group.group_type in types)
        ],
    }
