"""What OffsetCommit and TxnOffsetCommit ask for, partition by partition: what may be committed, and what is refused;
and the response to both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.coordinator.group.offsets.committed import OffsetKey
from broker_embedded.coordinator.group.requests import OffsetsCommitted, PartitionCommit
from broker_embedded.coordinator.runtime.reply import Reply
from broker_embedded.server.requests.context import Body, RequestContext
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasFaults, HasMetadata

    class Needs(HasMetadata, HasFaults, Protocol): ...


def sort_out(
    ctx: RequestContext[Needs], api_key: ApiKey, request: Message
) -> tuple[tuple[PartitionCommit, ...], Reply[OffsetsCommitted]]:
    """Return what may be committed, and the reply to the request; it is settled if there is nothing."""
    names = [ctx.services.metadata.image.name_in(topic) for topic in request.topics]
    commits: list[PartitionCommit] = []
    refused: dict[OffsetKey, ErrorCode] = {}
    for name, topic in zip(names, request.topics, strict=True):
        if name is None:
            continue
        for asked in topic.partitions:
            key = OffsetKey(name, asked.partition_index)
            error = _refusal(ctx, api_key, request, key)
            if error is not None:
                refused[key] = error
            else:
                commits.append(
                    PartitionCommit(
                        key=key,
                        offset=asked.committed_offset,
                        leader_epoch=asked.committed_leader_epoch,
                        metadata=asked.committed_metadata or "",
                    )
                )
    reply: Reply[OffsetsCommitted] = Reply(lambda answer: commit_body(request, names, answer, refused))
    if not commits:
        reply.settle(OffsetsCommitted())
    return tuple(commits), reply


def commit_body(
    request: Message,
    names: Sequence[str | None] | None,
    answer: OffsetsCommitted,
    refused: Mapping[OffsetKey, ErrorCode],
) -> Body:
    """Return the response. `names` has the name of each topic, or None where no topic has the id. It is None as a whole
    if `answer` is an error of the whole request."""
    topics = []
    for topic, name in zip(request.topics, names or ["" for _ in request.topics], strict=True):
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


def _refusal(ctx: RequestContext[Needs], api_key: ApiKey, request: Message, key: OffsetKey) -> ErrorCode | None:
    services = ctx.services
    if services.metadata.image.partition(TopicPartition(*key)) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if services.faults.is_armed:
        try:
            services.faults.check_partition(api_key, ctx.client_id, request, *key)
        except BrokerError as error:
            return error.code
    return None
