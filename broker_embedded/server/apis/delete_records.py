"""DeleteRecords (key 21), versions 0-2: move the log start offset forward; -1 means the high watermark.

Not done: with replicas the answer does not wait until every follower has moved its low watermark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasFaults, HasReplicas

    class Needs(HasReplicas, HasFaults, Protocol): ...


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _partition(ctx, request, topic.name, each)
                    for each in {each.partition_index: each for each in topic.partitions}.values()
                ],
            }
            for topic in request.topics
        ]
    }


def _partition(ctx: RequestContext[Needs], request: Message, topic: str, wanted: Message) -> Body:
    index = wanted.partition_index
    faults = ctx.services.faults
    try:
        if faults.is_armed:
            faults.check_partition(ApiKey.DELETE_RECORDS, ctx.client_id, request, topic, index)
        partition = ctx.services.replicas.leader_partition(TopicPartition(topic, index))
        if not partition.config.deletes_old_segments:
            raise BrokerError(ErrorCode.POLICY_VIOLATION, f"{topic}: cleanup.policy has no delete")
        low_watermark = partition.log.delete_records(wanted.offset)
    except BrokerError as error:
        return {"partition_index": index, "low_watermark": -1, "error_code": int(error.code)}
    return {"partition_index": index, "low_watermark": low_watermark, "error_code": 0}
