"""DescribeTopicPartitions (key 75), version 0: topics page by page, in order of their names.

At most response_partition_limit partitions per response; the cursor says where the next page starts. Not done: eligible
leader replicas (KIP-966) are empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import INTERNAL_TOPICS, NO_LEADER
from broker_embedded.metadata.image import ClusterImage, TopicImage
from broker_embedded.security.authorized_operations import TOPIC_OPERATIONS
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ZERO_UUID, ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasMetadata

MAX_PARTITIONS = 2000


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    return {
        "topics": [
            {"error_code": int(error.code), "name": topic.name, "topic_id": ZERO_UUID} for topic in request.topics
        ]
    }


def handle(ctx: RequestContext[HasMetadata], request: Message) -> Response:
    image = ctx.services.metadata.image
    if request.response_partition_limit < 1:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "response_partition_limit must be at least 1")
    asks_for_all = not request.topics
    names = sorted(image.topics if asks_for_all else {topic.name for topic in request.topics})
    cursor = request.cursor
    first_partition = 0
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
        if names and names[0] == cursor.topic_name:
            first_partition = max(cursor.partition_index, 0)
    room = min(request.response_partition_limit, MAX_PARTITIONS)
    topics: list[Body] = []
    for name in names:
        topic = image.topics.get(name)
        if topic is None:
            topics.append(
                {"error_code": int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "name": name, "topic_id": ZERO_UUID}
            )
            continue
        if room == 0:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": first_partition}}
        numbers = sorted(topic.partitions)[first_partition:]
        topics.append(_topic(image, topic, numbers[:room]))
        if len(numbers) > room:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": numbers[room]}}
        room -= len(numbers)
        first_partition = 0
    return {"topics": topics, "next_cursor": None}


def _topic(image: ClusterImage, topic: TopicImage, numbers: list[int]) -> Body:
    return {
        "error_code": 0,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": [_partition(image, topic, number) for number in numbers],
        "topic_authorized_operations": TOPIC_OPERATIONS,
    }


def _partition(image: ClusterImage, topic: TopicImage, number: int) -> Body:
    state = topic.partitions[number]
    return {
        "error_code": int(ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NO_LEADER else ErrorCode.NONE),
        "partition_index": number,
        "leader_id": state.leader,
        "leader_epoch": state.leader_epoch,
        "replica_nodes": state.replicas,
        "isr_nodes": state.isr,
        "eligible_leader_replicas": [],
        "last_known_elr": [],
        "offline_replicas": image.offline_replicas(state),
    }
