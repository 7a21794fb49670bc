"""InitProducerId (key 22), versions 0-6.

Idempotent producers get an id out of a block that the controller reserved; one that asks for a new epoch (KIP-360) gets
a new id, which serves the same purpose and is what Kafka does for producers without a transactional id. Not done:
transactional ids. They are refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED until the transaction coordinator serves.
"""

from __future__ import annotations

from broker_embedded.common.errors import BrokerError
from broker_embedded.server.futures import then
from broker_embedded.server.registry import Body, RequestContext, Response, api
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    return {"error_code": int(error.code), "producer_id": -1, "producer_epoch": -1}


@api(ApiKey.INIT_PRODUCER_ID, versions=(0, 6), on_error=on_error)
def handle(ctx: RequestContext, request: Message) -> Response:
    if request.transactional_id is not None:
        if not request.transactional_id:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        raise BrokerError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not served yet")
    return then(ctx.broker.next_producer_id(), lambda new: {"producer_id": new, "producer_epoch": 0})
