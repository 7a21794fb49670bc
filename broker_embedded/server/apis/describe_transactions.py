"""DescribeTransactions (key 65), version 0: state, producer and partitions of transactional ids of this coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasTransactions


def handle(ctx: RequestContext[HasTransactions], request: Message) -> Response:
    return {"throttle_time_ms": 0, "transaction_states": [_describe(ctx, each) for each in request.transactional_ids]}


def _describe(ctx: RequestContext[HasTransactions], transactional_id: str) -> Body:
    try:
        known = ctx.services.transactions.shard_of(transactional_id).get(transactional_id)
    except BrokerError as error:
        return _refused(transactional_id, error.code)
    if known is None:
        return _refused(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(known.partitions):
        topics.setdefault(topic, []).append(number)
    return {
        "error_code": 0,
        "transactional_id": transactional_id,
        "transaction_state": known.state.label,
        "transaction_timeout_ms": known.timeout_ms,
        "transaction_start_time_ms": known.start_ms,
        "producer_id": known.producer_id,
        "producer_epoch": known.producer_epoch,
        "topics": [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()],
    }


def _refused(transactional_id: str, error: ErrorCode) -> Body:
    return {
        "error_code": int(error),
        "transactional_id": transactional_id,
        "transaction_state": "",
        "transaction_timeout_ms": 0,
        "transaction_start_time_ms": -1,
        "producer_id": -1,
        "producer_epoch": -1,
        "topics": [],
    }
