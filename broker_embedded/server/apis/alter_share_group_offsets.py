"""AlterShareGroupOffsets (key 91), version 0: let a share group without members begin at other offsets (KIP-932).

What was settled above the new start offset is delivered again. A group with members is NON_EMPTY_GROUP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_embedded.common.promises import Promise, settle
from broker_embedded.coordinator.group.consumer.assignment import TopicIdPartition
from broker_embedded.server.handling.replies import error_fields
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.share.offset_needs import OffsetNeeds


def handle(ctx: RequestContext[OffsetNeeds], request: Message) -> Response:
    image = ctx.services.metadata.image
    promise: Promise[Body] = Promise()
    offsets: dict[TopicIdPartition, int] = {}
    rows: list[tuple[Message, bytes, list[tuple[int, ErrorCode]]]] = []
    for topic in request.topics:
        known = image.topic(topic.topic_name)
        errors: list[tuple[int, ErrorCode]] = []
        for each in topic.partitions:
            is_known = known is not None and each.partition_index in known.partitions and each.start_offset >= 0
            errors.append((each.partition_index, ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            if is_known and known is not None:
                offsets[TopicIdPartition(known.topic_id, each.partition_index)] = each.start_offset
        rows.append((topic, bytes(16) if known is None else known.topic_id, errors))

    def altered(results: dict[TopicIdPartition, ErrorCode]) -> None:
        responses = [
            {
                "topic_name": topic.topic_name,
                "topic_id": topic_id,
                "partitions": [
                    _row(number, error or results.get(TopicIdPartition(topic_id, number), ErrorCode.NONE))
                    for number, error in errors
                ],
            }
            for topic, topic_id, errors in rows
        ]
        settle(promise, {"throttle_time_ms": 0, **error_fields(None), "responses": responses})

    ctx.services.groups.shard_of(request.group_id).share_offsets.alter(request.group_id, offsets, altered)
    return promise


def _row(number: int, error: ErrorCode) -> dict[str, Any]:
    return {"partition_index": number, "error_code": int(error), "error_message": error.name if error else None}
