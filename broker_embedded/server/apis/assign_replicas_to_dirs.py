"""AssignReplicasToDirs (key 73), version 0: a broker tells the controller in which log directories its replicas are.

From this the controller knows which replicas are lost with a failed or replaced directory (KIP-858).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.promises import map_result
from broker_embedded.controller.partition_requests import DirectoryAssignment
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasController


def handle(ctx: RequestContext[HasController], request: Message) -> Response:
    wanted = [
        DirectoryAssignment(topic_id=topic.topic_id, partition=each.partition_index, directory=directory.id)
        for directory in request.directories
        for topic in directory.topics
        for each in topic.partitions
    ]

    def answer(errors: list[ErrorCode]) -> Body:
        following = iter(errors)
        return {
            "error_code": 0,
            "directories": [
                {
                    "id": directory.id,
                    "topics": [
                        {
                            "topic_id": topic.topic_id,
                            "partitions": [
                                {"partition_index": each.partition_index, "error_code": int(next(following))}
                                for each in topic.partitions
                            ],
                        }
                        for topic in directory.topics
                    ],
                }
                for directory in request.directories
            ],
        }

    assigned = ctx.services.controller.partitions.assign_directories(request.broker_id, request.broker_epoch, wanted)
    return map_result(assigned, answer)
