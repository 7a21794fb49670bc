"""CreateAcls (key 30), versions 1 to 3: there is no authorizer, so none is created. Each is told so."""

from __future__ import annotations

from broker_embedded.server.no_authorizer import NOTHING_TO_CHANGE
from broker_embedded.server.registry import RequestContext, Response
from ottla_wire.protocol.message import Message


def handle(ctx: RequestContext, request: Message) -> Response:
    return {"throttle_time_ms": 0, "results": [dict(NOTHING_TO_CHANGE) for _ in request.creations]}
