"""AllocateProducerIds (key 67), version 0: 1000 producer ids that nobody else gets, for a registered broker."""

from __future__ import annotations

from broker_embedded.common.promises import then
from broker_embedded.server.requests.registry import RequestContext, Response
from ottla_wire.protocol.message import Message


def handle(ctx: RequestContext, request: Message) -> Response:
    block = ctx.broker.controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
    return then(block, lambda ids: {"error_code": 0, "producer_id_start": ids.start, "producer_id_len": len(ids)})
