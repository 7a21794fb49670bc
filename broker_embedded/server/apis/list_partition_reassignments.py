"""ListPartitionReassignments (key 46), version 0: the moves in progress, of all partitions or of those named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.metadata.image import PartitionImage
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasController


def handle(ctx: RequestContext[HasController], request: Message) -> Response:
    image = ctx.services.controller.image
    if request.topics is None:
        wanted = [(topic, sorted(topic.partitions)) for topic in image.topics.values()]
    else:
        found = [(image.topic(each.name), each.partition_indexes) for each in request.topics]
        wanted = [(topic, numbers) for topic, numbers in found if topic is not None]
    topics: list[Body] = []
    for topic, numbers in wanted:
        states = [topic.partitions[number] for number in numbers if number in topic.partitions]
        moving = [_ongoing(state) for state in states if state.is_reassigning]
        if moving:
            topics.append({"name": topic.name, "partitions": moving})
    return {"error_code": 0, "error_message": None, "topics": topics}


def _ongoing(state: PartitionImage) -> Body:
    return {
        "partition_index": state.partition,
        "replicas": list(state.replicas),
        "adding_replicas": list(state.adding_replicas),
        "removing_replicas": list(state.removing_replicas),
    }
