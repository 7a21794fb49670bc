"""AlterPartitionReassignments (key 45), versions 0-1: start, replace or cancel (null) a move of replicas.

A move ends by itself when every added replica is in sync; then the removed ones go, and another leads if the leader was
among them. Throttles are the topic settings leader. and follower.replication.throttled.replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.promises import map_result
from broker_embedded.controller.partition_requests import Outcome
from broker_embedded.controller.reassignment import Reassignment
from broker_embedded.server.handling.replies import error_fields
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasController


def handle(ctx: RequestContext[HasController], request: Message) -> Response:
    allow = request.allow_replication_factor_change
    wanted = [
        Reassignment(
            topic=topic.name,
            partition=each.partition_index,
            replicas=None if each.replicas is None else tuple(each.replicas),
        )
        for topic in request.topics
        for each in topic.partitions
    ]

    def answer(outcomes: list[Outcome]) -> Body:
        following = iter(outcomes)
        return {
            "allow_replication_factor_change": allow,
            "error_code": 0,
            "error_message": None,
            "responses": [
                {
                    "name": topic.name,
                    "partitions": [_result(each.partition_index, next(following)) for each in topic.partitions],
                }
                for topic in request.topics
            ],
        }

    return map_result(ctx.services.controller.partitions.reassign(wanted, allow_factor_change=allow), answer)


def _result(partition: int, error: Outcome) -> Body:
    return {"partition_index": partition, **error_fields(error)}
