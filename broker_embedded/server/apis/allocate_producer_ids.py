"""AllocateProducerIds (key 67), version 0: a block of 1000 unique producer ids for a registered broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.promises import map_result
from broker_embedded.server.requests.context import RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasController


def handle(ctx: RequestContext[HasController], request: Message) -> Response:
    block = ctx.services.controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
    return map_result(block, lambda ids: {"error_code": 0, "producer_id_start": ids.start, "producer_id_len": len(ids)})
