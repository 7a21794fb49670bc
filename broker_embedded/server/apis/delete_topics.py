"""DeleteTopics (key 20), versions 1-6: by name, and from 6 by name or id.

Files are renamed at once and removed after file.delete.delay.ms. As in Kafka, internal topics can be deleted too,
and what is named twice in one request is not deleted.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import map_result
from broker_embedded.metadata.image import ClusterImage, TopicImage
from broker_embedded.server.handling.mutation_quota import mutation_quota
from broker_embedded.server.handling.replies import error_fields
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ZERO_UUID, ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasController, HasQuotas

    class Needs(HasController, HasQuotas, Protocol): ...


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    if version >= 6:
        return {"responses": [_response(each.name, each.topic_id, error) for each in request.topics]}
    return {"responses": [_response(name, ZERO_UUID, error) for name in request.topic_names]}


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    image = ctx.services.controller.image
    if ctx.api_version >= 6:
        wanted: list[tuple[str | None, bytes]] = [(each.name, bytes(each.topic_id)) for each in request.topics]
    else:
        wanted = [(name, ZERO_UUID) for name in request.topic_names]
    responses: list[Body] = []
    doomed: dict[int, TopicImage] = {}
    counts = Counter(wanted)
    given_ids = {topic_id for _, topic_id in wanted if topic_id != ZERO_UUID}
    named = {topic.topic_id for name, _ in wanted if name is not None and (topic := image.topic(name)) is not None}
    for name, topic_id in counts:
        try:
            _check(name, topic_id, is_repeated=counts[name, topic_id] > 1)
            if name is None and topic_id in named:
                continue  # its name is answered, and the topic stays
            topic = _find(image, name, topic_id)
            if name is not None and topic.topic_id in given_ids:
                raise _invalid("The provided topic name maps to an ID that was already supplied.")
        except BrokerError as error:
            responses.append(_response(name, topic_id, error))
            continue
        doomed[len(responses)] = topic
        responses.append(_response(topic.name, topic.topic_id, None))
    quota = mutation_quota(ctx, strict_from=5)

    def answer(outcomes: list[BrokerError | None]) -> Body:
        for (index, topic), outcome in zip(doomed.items(), outcomes, strict=True):
            responses[index] = _response(topic.name, topic.topic_id, outcome)
        return {"throttle_time_ms": quota.throttle_ms(), "responses": responses}

    return map_result(ctx.services.controller.delete_topics(list(doomed.values()), charge=quota.charge), answer)


def _check(name: str | None, topic_id: bytes, *, is_repeated: bool) -> None:
    if name is None and topic_id == ZERO_UUID:
        raise _invalid("Neither topic name nor id were specified.")
    if name is not None and topic_id != ZERO_UUID:
        raise _invalid("You may not specify both topic name and topic id.")
    if is_repeated:
        raise _invalid(f"Duplicate topic {'id' if name is None else 'name'}.")


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, message)


def _find(image: ClusterImage, name: str | None, topic_id: bytes) -> TopicImage:
    topic = image.topic_by_id(topic_id) if name is None else image.topic(name)
    if topic is None:
        if name is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {topic_id.hex()}")
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    return topic


def _response(name: str | None, topic_id: bytes, error: BrokerError | None) -> Body:
    return {"name": name, "topic_id": topic_id, **error_fields(error)}
