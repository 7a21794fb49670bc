"""DescribeShareGroupOffsets (key 90), versions 0 to 1: start offsets of share groups, and their lag (1, KIP-1226).

Without topics all that the group has a state of. A partition of which it has none is described with start offset -1.
The lag is the records from the start offset to the end that are not settled; -1 if no leader answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.coordinator.group.consumer.assignment import TopicIdPartition
from broker_embedded.server.handling.replies import BodyOfParts, error_fields
from broker_embedded.server.requests.context import Body, RequestContext, Response
from broker_embedded.server.share.end_offsets import UNKNOWN, end_offsets
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.share.offset_needs import OffsetNeeds

NO_TOPIC_ID = bytes(16)


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    return {"throttle_time_ms": 0, "groups": [_failed(each.group_id, error) for each in request.groups]}


def handle(ctx: RequestContext[OffsetNeeds], request: Message) -> Response:
    parts = BodyOfParts()
    groups: list[Body] = []
    for group in request.groups:
        body, complete = parts.part()
        groups.append(body)
        try:
            _describe(ctx, group, complete)
        except BrokerError as error:
            complete(_failed(group.group_id, error))
    return parts.when_complete({"throttle_time_ms": 0, "groups": groups})


def _describe(ctx: RequestContext[OffsetNeeds], group: Message, done: Callable[[Body], None]) -> None:
    image = ctx.services.metadata.image
    wanted: list[TopicIdPartition] | None = None
    unknown: list[Body] = []
    if group.topics is not None:
        wanted = []
        for topic in group.topics:
            known = image.topic(topic.topic_name)
            if known is None:
                rows = [_row(number, UNKNOWN) for number in topic.partitions]
                unknown.append({"topic_name": topic.topic_name, "topic_id": NO_TOPIC_ID, "partitions": rows})
            else:
                wanted += [TopicIdPartition(known.topic_id, number) for number in topic.partitions]

    def described(summaries: dict[TopicIdPartition, Any]) -> None:
        names = ctx.services.metadata.image.topic_names
        partitions = {each: TopicPartition(names.get(each.topic_id, ""), each.partition) for each in summaries}

        def counted(ends: dict[TopicPartition, int]) -> None:
            topics: dict[bytes, list[Body]] = {}
            for each, summary in summaries.items():
                topics.setdefault(each.topic_id, []).append(_described(each, summary, ends[partitions[each]]))
            rows = [
                {"topic_name": names[topic_id], "topic_id": topic_id, "partitions": each}
                for topic_id, each in topics.items()
                if topic_id in names
            ]
            done({"group_id": group.group_id, "topics": [*rows, *unknown], "error_code": 0, "error_message": None})

        end_offsets(ctx, partitions.values(), counted)

    ctx.services.groups.shard_of(group.group_id).share_offsets.describe(group.group_id, wanted, described)


def _described(partition: TopicIdPartition, summary: Any, end_offset: int) -> Body:
    if isinstance(summary, BrokerError):
        return {**_row(partition.partition, UNKNOWN), **error_fields(summary)}
    row = _row(partition.partition, summary.start_offset)
    row["leader_epoch"] = summary.leader_epoch
    if summary.start_offset >= 0 and end_offset >= 0:
        row["lag"] = max(0, end_offset - summary.start_offset - max(0, summary.complete_count))
    return row


def _row(number: int, start_offset: int) -> Body:
    return {
        "partition_index": number,
        "start_offset": start_offset,
        "leader_epoch": 0,
        "lag": UNKNOWN,
        "error_code": 0,
        "error_message": None,
    }


def _failed(group_id: str, error: BrokerError) -> Body:
    return {"group_id": group_id, "topics": [], **error_fields(error)}
