"""WriteTxnMarkers (key 27), versions 1 and 2: a coordinator tells this leader how transactions ended.

Each partition is answered when its marker is on every in-sync replica. A coordinator that was replaced is refused with
TRANSACTION_COORDINATOR_FENCED. A marker that is already there is not written again. Version 2 names the
transaction.version, so that a late marker cannot end the transaction after its own (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.coordinator.transaction.marker_writer import TransactionMarker
from broker_embedded.coordinator.transaction.transaction import ProducerIdentity
from broker_embedded.server.handling.replies import BodyOfParts
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasTransactions


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    return _markers(
        request, lambda _, partition: {"partition_index": partition.partition, "error_code": int(error.code)}
    )


def handle(ctx: RequestContext[HasTransactions], request: Message) -> Response:
    parts = BodyOfParts()

    def write(wanted: Message, partition: TopicPartition) -> Body:
        answer, complete = parts.part(partition_index=partition.partition)
        ctx.services.transactions.marker_writer.write(
            partition, _marker(wanted), lambda error: complete({"error_code": int(error)})
        )
        return answer

    return parts.when_complete(_markers(request, write))


def _markers(request: Message, answer: Callable[[Message, TopicPartition], Body]) -> Body:
    return {
        "markers": [
            {
                "producer_id": wanted.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            answer(wanted, TopicPartition(topic.name, number)) for number in topic.partition_indexes
                        ],
                    }
                    for topic in wanted.topics
                ],
            }
            for wanted in request.markers
        ]
    }


def _marker(wanted: Message) -> TransactionMarker:
    return TransactionMarker(
        producer=ProducerIdentity(wanted.producer_id, wanted.producer_epoch),
        committed=wanted.transaction_result,
        coordinator_epoch=wanted.coordinator_epoch,
        transaction_version=wanted.transaction_version,
    )
