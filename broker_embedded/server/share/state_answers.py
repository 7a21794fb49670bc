"""Runs a request to the share coordinator for each of its share partitions, and answers when all are done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker_embedded.common.errors import BrokerError
from broker_embedded.server.handling.replies import BodyOfParts, error_fields
from broker_embedded.server.requests.context import Body, RequestContext, Response
from broker_embedded.share.persister import ShareKey
from broker_embedded.share.state_requests import StateRequest
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasShares

MakeRequest = Callable[[Message], StateRequest]
"""May raise BrokerError for what a client must not ask."""
Fields = Callable[[Any], dict[str, Any]]


def failed(request: Message, version: int, error: BrokerError) -> Body:
    """Return the answer that refuses every share partition."""
    return _results(request, lambda key, _: {"partition": key.partition, **error_fields(error)})


def answer(
    ctx: RequestContext[HasShares], request: Message, make: MakeRequest, fields: Fields = lambda result: {}
) -> Response:
    """Return the response, or a promise of it. `fields` are the fields of a result beside its error."""
    parts = BodyOfParts()

    def one(key: ShareKey, asked: Message) -> Body:
        result, complete = parts.part(partition=key.partition)

        def done(found: Any) -> None:
            complete(error_fields(found) if isinstance(found, BrokerError) else {**error_fields(None), **fields(found)})

        try:
            make(asked).run(ctx.services.share_states.shard_of(key), key, done)
        except BrokerError as error:
            done(error)
        return result

    return parts.when_complete(_results(request, one))


def _results(request: Message, one: Callable[[ShareKey, Message], Body]) -> Body:
    return {
        "results": [
            {
                "topic_id": topic.topic_id,
                "partitions": [
                    one(ShareKey(request.group_id, bytes(topic.topic_id), each.partition), each)
                    for each in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }
