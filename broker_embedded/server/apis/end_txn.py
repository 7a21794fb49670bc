"""EndTxn (key 26), versions 0 to 5: commit or abort.

Answered when the decision is in `__transaction_state` on every in-sync replica: from then on this coordinator, or the
next one, completes it. Version 5 is transaction.version 2 (KIP-890): every end raises the producer's epoch, and the
response has the new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.coordinator.runtime.reply import Reply
from broker_embedded.coordinator.transaction.requests import EndTransaction, Identified
from broker_embedded.coordinator.transaction.transaction import EPOCH_BUMPED_AT_EVERY_END, ProducerIdentity
from broker_embedded.server.handling.replies import response_of
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasTransactions

FIRST_WITH_PRODUCER_FENCED = 2
FIRST_WITH_EPOCH_BUMP = 5


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    return _body(Identified(error=error.code), version)


def handle(ctx: RequestContext[HasTransactions], request: Message) -> Response:
    version = ctx.api_version
    shard = ctx.services.transactions.shard_of(request.transactional_id)
    reply: Reply[Identified] = Reply(lambda answer: _body(answer, version))
    shard.end_transaction(
        EndTransaction(
            transactional_id=request.transactional_id,
            producer=ProducerIdentity(request.producer_id, request.producer_epoch),
            commit=request.committed,
            client_version=EPOCH_BUMPED_AT_EVERY_END if version >= FIRST_WITH_EPOCH_BUMP else 0,
        ),
        reply,
    )
    return response_of(reply)


def _body(answer: Identified, version: int) -> Body:
    error = answer.error
    if error is ErrorCode.PRODUCER_FENCED and version < FIRST_WITH_PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return {
        "throttle_time_ms": 0,
        "error_code": int(error),
        "producer_id": answer.identity.producer_id,
        "producer_epoch": answer.identity.epoch,
    }
