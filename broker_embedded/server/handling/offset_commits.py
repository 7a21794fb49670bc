"""What OffsetCommit and TxnOffsetCommit ask for, partition by partition: what may be committed, and what is refused;
and the response to both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.coordinator.group.offsets.committed import OffsetKey
from broker_embedded.coordinator.group.requests import OffsetsCommitted, PartitionCommit
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.server.requests.context import Body, RequestContext
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasFaults, HasMetadata

    class Needs(HasMetadata, HasFaults, Protocol): ...


Refusals = dict[OffsetKey, ErrorCode]


def sort_out(
    ctx: RequestContext[Needs], api_key: ApiKey, request: Message, topics: Iterable[tuple[str, Sequence[Message]]]
) -> tuple[tuple[PartitionCommit, ...], Refusals]:
    """Sort out what may be committed. `topics`: each by its name, with the partitions that the request has for it."""
    commits: list[PartitionCommit] = []
    refused: Refusals = {}
    for name, partitions in topics:
        for asked in partitions:
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
    return tuple(commits), refused


def topic_names(request: Message, image: ClusterImage, *, has_ids: bool) -> list[str | None]:
    """Return the name of each topic of the request, in its order; None for an id that no topic has."""
    if not has_ids:
        return [topic.name for topic in request.topics]
    found = [image.topic_by_id(topic.topic_id) for topic in request.topics]
    return [None if topic is None else topic.name for topic in found]


def commit_body(
    request: Message,
    names: Sequence[str | None] | None,
    answer: OffsetsCommitted,
    refused: Mapping[OffsetKey, ErrorCode],
) -> Body:
    """Return the response. `names`: of `topic_names`, or None if `answer` is an error of the whole request."""
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
