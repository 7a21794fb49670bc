"""DeleteAcls (key 31), versions 1 to 3: there is no authorizer, so nothing to delete. Each filter is told so."""

from __future__ import annotations

from broker_embedded.server.no_authorizer import NOTHING_TO_CHANGE
from broker_embedded.server.registry import RequestContext, Response
from ottla_wire.protocol.message import Message


def handle(ctx: RequestContext, request: Message) -> Response:
    return {
        "throttle_time_ms": 0,
        "filter_results": [{**NOTHING_TO_CHANGE, "matching_acls": []} for _ in request.filters],
    }
