"""DescribeProducers (key 61), version 0: active producer ids of a partition, and their open transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasReplicas


def handle(ctx: RequestContext[HasReplicas], request: Message) -> Response:
    return {
        "topics": [
            {"name": topic.name, "partitions": [_partition(ctx, topic.name, each) for each in topic.partition_indexes]}
            for topic in request.topics
        ]
    }


def _partition(ctx: RequestContext[HasReplicas], topic: str, index: int) -> Body:
    try:
        partition = ctx.services.replicas.leader_partition(TopicPartition(topic, index))
    except BrokerError as error:
        return {"partition_index": index, "error_code": int(error.code), "error_message": error.message}
    return {
        "partition_index": index,
        "error_code": 0,
        "active_producers": [
            {
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "last_sequence": each.last_sequence,
                "last_timestamp": each.last_timestamp_ms,
                "coordinator_epoch": each.coordinator_epoch,
                "current_txn_start_offset": each.current_transaction_start_offset,
            }
            for each in partition.log.active_producers()
        ],
    }
