"""PushTelemetry (key 72), version 0: metrics of clients are accepted and dropped; a wrong subscription id gets an error
(KIP-714).
"""

from __future__ import annotations

from broker_embedded.common.errors import BrokerError
from broker_embedded.server.apis.get_telemetry_subscriptions import SUBSCRIPTION_ID, TELEMETRY_MAX_BYTES
from broker_embedded.server.requests.context import RequestContext, Response
from ottla_wire.protocol import ZERO_UUID, ErrorCode
from ottla_wire.protocol.message import Message


def handle(ctx: RequestContext[object], request: Message) -> Response:
    if request.client_instance_id == ZERO_UUID:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "the client instance id is zero")
    if request.subscription_id != SUBSCRIPTION_ID:
        raise BrokerError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, f"there is no subscription {request.subscription_id}")
    if len(request.metrics) > TELEMETRY_MAX_BYTES:
        raise BrokerError(ErrorCode.TELEMETRY_TOO_LARGE, f"found {len(request.metrics)} bytes of metrics")
    return {"error_code": 0}
