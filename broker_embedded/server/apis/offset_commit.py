"""OffsetCommit (key 8), versions 2 to 10: store a group's offsets in `__consumer_offsets`.

Answered when the log has them. Versions 2 to 4 may bring an expiry of their own; 9 and later speak of member epochs
(KIP-848), 10 names topics by id. Offsets of a partition that does not exist are refused, partition by partition.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker_embedded.common.errors import BrokerError
from broker_embedded.coordinator.group.offsets.committed import OffsetKey
from broker_embedded.coordinator.group.requests import CommitOffsets, OffsetsCommitted
from broker_embedded.coordinator.runtime.reply import Reply
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.server.offset_commits import sort_out
from broker_embedded.server.registry import Body, RequestContext, Response
from broker_embedded.server.replies import response_of
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

FIRST_WITH_MEMBER_EPOCHS = 9
FIRST_WITH_TOPIC_IDS = 10


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    everything = {topic_id: topic_id.hex() for topic_id in {topic.topic_id for topic in request.topics}}
    return _body(request, version, OffsetsCommitted(error=error.code), everything, {})


def handle(ctx: RequestContext, request: Message) -> Response:
    version = ctx.api_version
    image = ctx.broker.metadata.image
    shard = ctx.broker.groups.shard_of(request.group_id)
    has_ids = version >= FIRST_WITH_TOPIC_IDS
    names = {topic.topic_id: _name_of(topic.topic_id, image) for topic in request.topics} if has_ids else {}
    named = [(names[topic.topic_id] if has_ids else topic.name, topic.partitions) for topic in request.topics]
    known = [(name, partitions) for name, partitions in named if name is not None]
    commits, refused = sort_out(ctx, ApiKey.OFFSET_COMMIT, request, known)
    reply: Reply[OffsetsCommitted] = Reply(lambda answer: _body(request, version, answer, names, refused))
    if not commits:
        reply.settle(OffsetsCommitted())
        return response_of(reply)
    shard.commit_offsets(
        CommitOffsets(
            group_id=request.group_id,
            partitions=commits,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation=request.generation_id_or_member_epoch,
            retention_ms=request.retention_time_ms if request.retention_time_ms >= 0 else None,
            knows_member_epochs=version >= FIRST_WITH_MEMBER_EPOCHS,
        ),
        reply,
    )
    return response_of(reply)


def _name_of(topic_id: bytes, image: ClusterImage) -> str | None:
    topic = image.topic_by_id(topic_id)
    return None if topic is None else topic.name


def _body(
    request: Message,
    version: int,
    answer: OffsetsCommitted,
    names: Mapping[bytes, str | None],
    refused: Mapping[OffsetKey, ErrorCode],
) -> Body:
    topics = []
    for topic in request.topics:
        name = names.get(topic.topic_id) if version >= FIRST_WITH_TOPIC_IDS else topic.name
        partitions = []
        for partition in topic.partitions:
            index = partition.partition_index
            if name is None:
                error = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                key = OffsetKey(name, index)
                error = refused[key] if key in refused else answer.error_of(key)
            partitions.append({"partition_index": index, "error_code": int(error)})
        topics.append({"name": topic.name, "topic_id": topic.topic_id, "partitions": partitions})
    return {"throttle_time_ms": 0, "topics": topics}
