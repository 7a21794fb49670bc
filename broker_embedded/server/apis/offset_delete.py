"""OffsetDelete (key 47), version 0: forget a group's offsets of topics that its members do not read (KIP-496)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.types import TopicPartition
from broker_embedded.coordinator.group.offsets.committed import OffsetKey
from broker_embedded.coordinator.group.requests import DeleteOffsets, OffsetsDeleted
from broker_embedded.coordinator.runtime.reply import Reply
from broker_embedded.server.handling.replies import response_of
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasGroups, HasMetadata

    class Needs(HasMetadata, HasGroups, Protocol): ...


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    image = ctx.services.metadata.image
    shard = ctx.services.groups.shard_of(request.group_id)
    asked = [
        OffsetKey(topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    ]
    known = tuple(key for key in asked if image.partition(TopicPartition(*key)) is not None)
    reply: Reply[OffsetsDeleted] = Reply(lambda answer: _body(request, answer))
    shard.delete_offsets(DeleteOffsets(group_id=request.group_id, keys=known), reply)
    return response_of(reply)


def _body(request: Message, answer: OffsetsDeleted) -> Body:
    if answer.error is not ErrorCode.NONE:
        return {"error_code": int(answer.error), "throttle_time_ms": 0, "topics": []}
    topics = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            key = OffsetKey(topic.name, partition.partition_index)
            error = answer.partitions.get(key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            partitions.append({"partition_index": partition.partition_index, "error_code": int(error)})
        topics.append({"name": topic.name, "partitions": partitions})
    return {"error_code": 0, "throttle_time_ms": 0, "topics": topics}
