"""DeleteAcls (key 31), versions 1 to 3: there is no authorizer, so nothing to delete. Each filter is told so."""

from __future__ import annotations

from broker_embedded.server.registry import RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message


def handle(ctx: RequestContext, request: Message) -> Response:
    refused = {
        "error_code": int(ErrorCode.SECURITY_DISABLED),
        "error_message": "No Authorizer is configured.",
        "matching_acls": [],
    }
    return {"throttle_time_ms": 0, "filter_results": [refused for _ in request.filters]}
