"""InitProducerId (key 22), versions 0-6.

Without a transactional id: an id out of a block that the controller reserved; a producer that asks for a new epoch
(KIP-360) gets a new id, which serves the same purpose and is what Kafka does. With one: every earlier producer of the
same transactional id is fenced by a higher epoch. Its open transaction is aborted first, and until that is done the
answer is CONCURRENT_TRANSACTIONS. From version 3 a producer that was fenced by nobody may raise its own epoch
(KIP-360); epochs that run out are followed by a new id. Not done: two-phase commit (KIP-939), refused with
TRANSACTIONAL_ID_AUTHORIZATION_FAILED as by a Kafka broker on which it is not enabled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import map_result
from broker_embedded.coordinator.runtime.reply import Reply
from broker_embedded.coordinator.transaction.requests import NOBODY, Identified, InitProducer
from broker_embedded.coordinator.transaction.transaction import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdentity
from broker_embedded.server.handling.replies import response_of
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasProducerIds, HasTransactions

    class Needs(HasTransactions, HasProducerIds, Protocol): ...


FIRST_WITH_PRODUCER_FENCED = 4


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    return _body(Identified(error=error.code), version)


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    version = ctx.api_version
    if request.transactional_id is None:
        return map_result(ctx.services.producer_ids.next(), lambda new: {"producer_id": new, "producer_epoch": 0})
    if request.enable2_pc or request.keep_prepared_txn:
        raise BrokerError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "two-phase commit is not enabled")
    claimed = ProducerIdentity(request.producer_id, request.producer_epoch)
    if (claimed.producer_id == NO_PRODUCER_ID) is not (claimed.epoch == NO_PRODUCER_EPOCH):
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"found {claimed}, wanted both or neither of id and epoch")
    wanted = InitProducer(
        transactional_id=request.transactional_id,
        timeout_ms=request.transaction_timeout_ms,
        claimed=None if claimed == NOBODY else claimed,
    )
    shard = ctx.services.transactions.shard_of(wanted.transactional_id)
    ctx.services.transactions.check_init(wanted)
    reply: Reply[Identified] = Reply(lambda answer: _body(answer, version))
    shard.init_producer(wanted, reply)
    return response_of(reply)


def _body(answer: Identified, version: int) -> Body:
    error = answer.error
    if error is ErrorCode.PRODUCER_FENCED and version < FIRST_WITH_PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return {
        "error_code": int(error),
        "producer_id": answer.identity.producer_id,
        "producer_epoch": answer.identity.epoch,
    }
