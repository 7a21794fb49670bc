"""AddPartitionsToTxn (key 24), versions 0 to 5: partitions become part of a producer's transaction.

Versions 0 to 3 come from producers, one transaction at a time; a partition that does not exist refuses all of them.
Version 4 and later come from leaders (KIP-890), several transactions at once: to ask whether a partition is part of
the transaction (`verify_only`), or to add it for a client of transaction.version 2.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.coordinator.runtime.reply import Reply
from broker_embedded.coordinator.transaction.requests import AddPartitions, PartitionsChecked
from broker_embedded.coordinator.transaction.transaction import EPOCH_BUMPED_AT_EVERY_END, ProducerIdentity
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.server.handling.replies import BodyOfParts, response_of
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasFaults, HasMetadata, HasTransactions

    class Needs(HasMetadata, HasTransactions, HasFaults, Protocol): ...


FIRST_WITH_PRODUCER_FENCED = 2
FIRST_OF_BROKERS = 4


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    if version >= FIRST_OF_BROKERS:
        return {"throttle_time_ms": 0, "error_code": int(error.code), "results_by_transaction": []}
    topics = request.v3_and_below_topics
    return _body_of_producer(topics, PartitionsChecked(error=error.code), version)


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    if ctx.api_version >= FIRST_OF_BROKERS:
        return _of_brokers(ctx, request)
    version, topics = ctx.api_version, request.v3_and_below_topics
    reply: Reply[PartitionsChecked] = Reply(lambda answer: _body_of_producer(topics, answer, version))
    wanted = AddPartitions(
        transactional_id=request.v3_and_below_transactional_id,
        producer=ProducerIdentity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
        partitions=_partitions_of(topics),
    )
    _add(ctx, request, wanted, reply)
    return response_of(reply)


def _add(ctx: RequestContext[Needs], request: Message, wanted: AddPartitions, reply: Reply[PartitionsChecked]) -> None:
    shard = ctx.services.transactions.shard_of(wanted.transactional_id)
    unknown = _unknown(wanted, ctx.services.metadata.image)
    refused = dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    faults = ctx.services.faults
    if faults.is_armed:
        for each in wanted.partitions:
            try:
                faults.check_partition(ApiKey.ADD_PARTITIONS_TO_TXN, ctx.client_id, request, *each)
            except BrokerError as error:
                refused[each] = error.code
    if refused:
        reply.settle(PartitionsChecked(error=ErrorCode.OPERATION_NOT_ATTEMPTED, partitions=refused))
    else:
        shard.add_partitions(wanted, reply)


def _unknown(wanted: AddPartitions, image: ClusterImage) -> list[TopicPartition]:
    return [each for each in wanted.partitions if image.partition(each) is None]


def _of_brokers(ctx: RequestContext[Needs], request: Message) -> Response:
    """Handle each transaction separately; the response is sent after the last one."""
    parts = BodyOfParts()
    results: list[Body] = []
    for transaction in request.transactions:
        result, complete = parts.part()
        results.append(result)
        reply: Reply[PartitionsChecked] = Reply(partial(_result, transaction))
        reply.listen(complete)
        _answer_one(ctx, request, transaction, reply)
    return parts.when_complete({"throttle_time_ms": 0, "error_code": 0, "results_by_transaction": results})


def _answer_one(
    ctx: RequestContext[Needs], request: Message, transaction: Message, reply: Reply[PartitionsChecked]
) -> None:
    wanted = AddPartitions(
        transactional_id=transaction.transactional_id,
        producer=ProducerIdentity(transaction.producer_id, transaction.producer_epoch),
        partitions=_partitions_of(transaction.topics),
        client_version=EPOCH_BUMPED_AT_EVERY_END,
    )
    try:
        if transaction.verify_only:
            reply.settle(ctx.services.transactions.shard_of(wanted.transactional_id).verify_partitions(wanted))
        else:
            _add(ctx, request, wanted, reply)
    except BrokerError as error:
        reply.settle(PartitionsChecked(error=error.code))


def _result(transaction: Message, answer: PartitionsChecked) -> Body:
    return {
        "transactional_id": transaction.transactional_id,
        "topic_results": _topic_results(transaction.topics, answer),
    }


def _body_of_producer(topics: Any, answer: PartitionsChecked, version: int) -> Body:
    if answer.error is ErrorCode.PRODUCER_FENCED and version < FIRST_WITH_PRODUCER_FENCED:
        answer = PartitionsChecked(error=ErrorCode.INVALID_PRODUCER_EPOCH)
    return {"throttle_time_ms": 0, "results_by_topic_v3_and_below": _topic_results(topics, answer)}


def _partitions_of(topics: Any) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic.name, number) for topic in topics for number in topic.partitions)


def _topic_results(topics: Any, answer: PartitionsChecked) -> list[Body]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {
                    "partition_index": number,
                    "partition_error_code": int(answer.error_of(TopicPartition(topic.name, number))),
                }
                for number in topic.partitions
            ],
        }
        for topic in topics
    ]
