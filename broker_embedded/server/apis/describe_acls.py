"""DescribeAcls (key 29), versions 1 to 3: there is no authorizer, as on a Kafka broker without one."""

from __future__ import annotations

from broker_embedded.server.no_authorizer import NOTHING_TO_DESCRIBE
from broker_embedded.server.registry import RequestContext, Response
from ottla_wire.protocol.message import Message


def handle(ctx: RequestContext, request: Message) -> Response:
    return {"throttle_time_ms": 0, **NOTHING_TO_DESCRIBE, "resources": []}
