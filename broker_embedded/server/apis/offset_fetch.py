"""OffsetFetch (key 9), versions 1 to 10: a group's committed offsets.

No topics (2 and later) asks for all. 7 can ask for stable offsets only (KIP-447), 8 for several groups at once
(KIP-709), 9 brings the member epoch (KIP-848), 10 names topics by id. An offset that was never committed is -1 without
an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.coordinator.group.offsets.committed import OffsetKey
from broker_embedded.coordinator.group.requests import FetchedOffset, FetchOffsets, OffsetsFetched
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ZERO_UUID, ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasGroups, HasMetadata

    class Needs(HasMetadata, HasGroups, Protocol): ...


FIRST_WITH_GROUPS = 8
FIRST_WITH_TOPIC_IDS = 10


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    if ctx.api_version >= FIRST_WITH_GROUPS:
        return {"throttle_time_ms": 0, "groups": [_group(ctx, request, group) for group in request.groups]}
    return _single(ctx, request)


def _single(ctx: RequestContext[Needs], request: Message) -> Body:
    keys = None
    if request.topics is not None:
        keys = tuple(OffsetKey(topic.name, index) for topic in request.topics for index in topic.partition_indexes)
    answer = _fetch(
        ctx, FetchOffsets(group_id=request.group_id, keys=keys, require_stable=bool(request.require_stable))
    )
    if answer.error is not ErrorCode.NONE:
        # Version 1 has no place at the top: every partition carries the error.
        failed = FetchedOffset(error=answer.error)
        answer = OffsetsFetched(error=answer.error, offsets=dict.fromkeys(keys or (), failed))
    topics = [
        {"name": name, "partitions": [_partition(index, fetched) for index, fetched in partitions]}
        for name, partitions in _by_topic(answer).items()
    ]
    return {"throttle_time_ms": 0, "topics": topics, "error_code": int(answer.error)}


def _group(ctx: RequestContext[Needs], request: Message, group: Message) -> Body:
    by_id = ctx.api_version >= FIRST_WITH_TOPIC_IDS
    image = ctx.services.metadata.image
    unknown: list[Body] = []
    keys: list[OffsetKey] | None = None
    if group.topics is not None:
        keys = []
        for topic in group.topics:
            name = image.name_in(topic)
            if name is None:
                failed = FetchedOffset(error=ErrorCode.UNKNOWN_TOPIC_ID)
                unknown.append(
                    {
                        "topic_id": topic.topic_id,
                        "partitions": [_partition(index, failed) for index in topic.partition_indexes],
                    }
                )
            else:
                keys += [OffsetKey(name, index) for index in topic.partition_indexes]
    answer = _fetch(
        ctx,
        FetchOffsets(
            group_id=group.group_id,
            keys=None if keys is None else tuple(keys),
            member_id=group.member_id,
            member_epoch=group.member_epoch,
            require_stable=request.require_stable,
        ),
    )
    if answer.error is not ErrorCode.NONE:
        return {"group_id": group.group_id, "topics": [], "error_code": int(answer.error)}
    topics = []
    for name, partitions in _by_topic(answer).items():
        known = image.topic(name)
        if by_id and known is None:
            continue
        topics.append(
            {
                "name": name,
                "topic_id": ZERO_UUID if known is None else known.topic_id,
                "partitions": [_partition(index, fetched) for index, fetched in partitions],
            }
        )
    return {"group_id": group.group_id, "topics": topics + unknown, "error_code": 0}


def _fetch(ctx: RequestContext[Needs], wanted: FetchOffsets) -> OffsetsFetched:
    try:
        return ctx.services.groups.shard_of_any(wanted.group_id).fetch_offsets(wanted)
    except BrokerError as error:
        return OffsetsFetched(error=error.code)


def _by_topic(answer: OffsetsFetched) -> dict[str, list[tuple[int, FetchedOffset]]]:
    topics: dict[str, list[tuple[int, FetchedOffset]]] = {}
    for key, fetched in answer.offsets.items():
        topics.setdefault(key.topic, []).append((key.partition, fetched))
    return topics


def _partition(index: int, fetched: FetchedOffset) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": fetched.offset,
        "committed_leader_epoch": fetched.leader_epoch,
        "metadata": fetched.metadata,
        "error_code": int(fetched.error),
    }
