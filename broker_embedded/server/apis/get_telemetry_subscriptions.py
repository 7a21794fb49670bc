"""GetTelemetrySubscriptions (key 71), version 0: no metrics are wanted from any client (KIP-714).

The answer gives a client instance id and an empty subscription, so that clients stop asking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.server.requests.context import RequestContext, Response
from ottla_wire.protocol import ZERO_UUID
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasUuids

PUSH_INTERVAL_MS = 300_000
TELEMETRY_MAX_BYTES = 1_048_576
SUBSCRIPTION_ID = 0
ACCEPTED_COMPRESSIONS = (4, 3, 1, 2)  # zstd, lz4, gzip, snappy, as Kafka lists them


def handle(ctx: RequestContext[HasUuids], request: Message) -> Response:
    instance_id = request.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = ctx.services.new_uuid()
    return {
        "error_code": 0,
        "client_instance_id": instance_id,
        "subscription_id": SUBSCRIPTION_ID,
        "accepted_compression_types": ACCEPTED_COMPRESSIONS,
        "push_interval_ms": PUSH_INTERVAL_MS,
        "telemetry_max_bytes": TELEMETRY_MAX_BYTES,
        "delta_temporality": True,
        "requested_metrics": [],
    }
