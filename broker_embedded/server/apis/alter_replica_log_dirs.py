"""AlterReplicaLogDirs (key 34), versions 1-2: move replicas to other log directories of the broker that is asked.

Answered when the move has begun; DescribeLogDirs shows its progress. A request for the replica's current directory
cancels the move. Differs from Kafka: a replica that is not here yet is refused without its directory being remembered
for later, and a restart ends a move that was under way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasMetadata, HasReplicas

    class Needs(HasMetadata, HasReplicas, Protocol): ...


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    return _results(request, lambda partition, path: error.code)


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    return _results(request, lambda partition, path: _move(ctx, partition, path))


def _results(request: Message, error_of: Callable[[TopicPartition, str], int]) -> Body:
    return {
        "results": [
            {
                "topic_name": topic.name,
                "partitions": [
                    {
                        "partition_index": number,
                        "error_code": int(error_of(TopicPartition(topic.name, number), directory.path)),
                    }
                    for number in topic.partitions
                ],
            }
            for directory in request.dirs
            for topic in directory.topics
        ]
    }


def _move(ctx: RequestContext[Needs], topic_partition: TopicPartition, path: str) -> ErrorCode:
    replicas = ctx.services.replicas
    partition = replicas.partition(topic_partition)
    if partition is None:
        is_known = ctx.services.metadata.image.partition(topic_partition) is not None
        return ErrorCode.REPLICA_NOT_AVAILABLE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        replicas.moves.move(partition, path.rstrip("/"))
    except BrokerError as error:
        return error.code
    return ErrorCode.NONE
