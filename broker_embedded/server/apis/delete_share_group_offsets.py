"""DeleteShareGroupOffsets (key 92), version 0: forget what a share group without members settled of topics (KIP-932).

The group begins on them as a new one does. A group with members is NON_EMPTY_GROUP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.promises import Promise, settle
from broker_embedded.server.handling.replies import error_fields
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.share.offset_needs import OffsetNeeds


def handle(ctx: RequestContext[OffsetNeeds], request: Message) -> Response:
    image = ctx.services.metadata.image
    promise: Promise[Body] = Promise()
    known = {each.topic_name: image.topic(each.topic_name) for each in request.topics}
    topic_ids = {name: topic.topic_id for name, topic in known.items() if topic is not None}

    def deleted(errors: dict[bytes, ErrorCode]) -> None:
        responses = []
        for name in known:
            error = errors[topic_ids[name]] if name in topic_ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            responses.append(
                {
                    "topic_name": name,
                    "topic_id": topic_ids.get(name, bytes(16)),
                    "error_code": int(error),
                    "error_message": error.name if error else None,
                }
            )
        settle(promise, {"throttle_time_ms": 0, **error_fields(None), "responses": responses})

    ctx.services.groups.shard_of(request.group_id).share_offsets.delete_topics(
        request.group_id, topic_ids.values(), deleted
    )
    return promise
