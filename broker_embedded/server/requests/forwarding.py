"""Requests that only the active controller can answer: answered here if it is on this node, else passed on to its node.

Clients may send them to any broker (KIP-590). The request is passed on as it came, the answer comes back as it was
written. While the controller moves, the request waits for the next one and is passed on again. That holds for the node
of the active controller too: its controller may lose its place before a change is committed, and a client need not
know. What the first controller did before it lost its place the second one finds done, as when a client asks again.
Topics that the first one answered for keep its answer: only the others are asked for again.

A request that another node passed on is never passed on a second time: two nodes that take each other for the leader
would do so for ever. It is told NOT_CONTROLLER, and the first node asks again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import copy
from functools import wraps
from typing import TYPE_CHECKING, Any

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.peers import PeerUnavailable
from broker_embedded.common.promises import Deferred, Promise, is_deferred, settle
from broker_embedded.common.types import NO_LEADER
from broker_embedded.controller.topics import MAX_PARTITIONS_PER_REQUEST
from broker_embedded.server.peers.controller_channel import says_not_controller
from ottla_wire.protocol import ApiKey, ErrorCode, codec
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.context import Body, Handler, RequestContext, Response
    from broker_embedded.server.requests.services import Services

    Check = Callable[[RequestContext[Any], Message], None]

PATIENCE_MS = 20_000
"""How long a request waits for a controller, unless its own timeout is shorter. An election takes that long only on a
machine that is very busy. Most clients give up after 30 s: they should hear why before.
"""
MS_PER_PARTITION = 5
"""More time for a request that makes partitions, for each of them: three nodes of a process make its directories."""
RETRY_MS = 20
CHANNEL = "forwarded"
TopicAnswer = Any
"""Of one topic: a Message where it came from another node, a dict where it was made here."""
_PEER = re.compile(r"broker-\d+(\n.*)?")
"""Client id of nodes in requests to each other; a suffix may name the original requester."""


def to_controller(key: ApiKey, handler: Handler, *, check_here: Check | None = None) -> Handler:
    """Return `handler`, called on the node with the active controller. `check_here` checks a client's request on the
    receiving node first, and raises BrokerError."""

    @wraps(handler)
    def handle(ctx: RequestContext[Services], request: Message) -> Response:
        if ctx.client_id is None or not _PEER.fullmatch(ctx.client_id):
            if check_here is not None:
                check_here(ctx, request)
            return _ForwardedRequest(key, handler, ctx, request).answer
        if not ctx.services.controller.is_active:
            raise BrokerError(ErrorCode.NOT_CONTROLLER, "the controller is on another node")
        return handler(ctx, request)

    return handle


def _work_ms(request: Message) -> int:
    """Return the additional time for a request that creates partitions."""
    topics = getattr(request, "topics", None) or ()
    counts = (max(getattr(each, "num_partitions", 0), getattr(each, "count", 0), 1) for each in topics)
    return MS_PER_PARTITION * sum(min(count, MAX_PARTITIONS_PER_REQUEST) for count in counts)


def _field(topic: TopicAnswer, name: str) -> Any:
    return getattr(topic, name) if isinstance(topic, Message) else topic[name]


class _ForwardedRequest:
    """One request on its way to the controller."""

    def __init__(self, key: ApiKey, handler: Handler, ctx: RequestContext[Services], request: Message) -> None:
        self.answer: Promise[Any] = Promise()
        self._key = key
        self._handler = handler
        self._ctx = ctx
        self._request = request
        self._encoded: bytes | None = None
        self._problem = "no controller is known"
        self._answered_topics: list[TopicAnswer] = []
        """Of a CreateTopics whose controller lost its place on the way: those that need not be asked for again."""
        self._other_topics: list[TopicAnswer] = []
        patience_ms = min(getattr(request, "timeout_ms", PATIENCE_MS), PATIENCE_MS + _work_ms(request))
        self._deadline = ctx.services.loop.time() + patience_ms / 1000
        self._try()

    def _try(self) -> None:
        if self.answer.done():  # the client has gone
            return
        controller = self._ctx.services.controller
        peers = self._ctx.services.peers
        if controller.is_active:
            self._try_here()
        elif peers is None or controller.leader_id in (NO_LEADER, self._ctx.services.node_id):
            self._retry()
        else:
            left_ms = max(int((self._deadline - self._ctx.services.loop.time()) * 1000), RETRY_MS)
            asked = peers.send_encoded(
                controller.leader_id,
                self._key,
                self._ctx.api_version,
                self._body(),
                channel=CHANNEL,
                timeout_ms=left_ms,
                on_behalf_of=self._on_behalf_of(),
            )
            asked.add_done_callback(self._answered)

    def _try_here(self) -> None:
        """Handle the request here, if the controller has come to this node in the meantime."""
        try:
            answer = self._handler(self._ctx, self._request)
        except Exception as error:
            self.answer.set_exception(error)
            return
        if is_deferred(answer):
            answer.add_done_callback(self._done_here)
        else:
            self.answer.set_result(answer)

    def _done_here(self, done: Deferred[Body]) -> None:
        if self.answer.done():  # the client has gone
            return
        error = None if done.cancelled() else done.exception()
        if isinstance(error, BrokerError) and error.code == ErrorCode.NOT_CONTROLLER:
            self._problem = "the controller is moving"
            self._retry()
        elif error is None and not done.cancelled() and self._key is ApiKey.CREATE_TOPICS:
            answer = done.result()
            self._topics_answered(answer, answer["topics"])
        else:
            settle(self.answer, done)

    def _answered(self, done: Deferred[bytes]) -> None:
        if self.answer.done():
            return
        error = done.exception()
        if error is not None:
            self._problem = error.message if isinstance(error, PeerUnavailable) else str(error)
            self._retry()
            return
        encoded = done.result()
        message = codec.decode_response(self._key, self._ctx.api_version, encoded)
        if self._key is ApiKey.CREATE_TOPICS:
            self._topics_answered(encoded, message.topics)
        elif says_not_controller(message):
            self._problem = "the controller is moving"
            self._retry()
        else:
            self.answer.set_result(encoded)

    def _topics_answered(self, answer: Body | bytes, topics: Sequence[TopicAnswer]) -> None:
        """Ask again for the topics that a controller did not reach before it lost its place, and for no others: what it
        created would be refused as existing.
        """
        missed = [each for each in topics if _field(each, "error_code") == ErrorCode.NOT_CONTROLLER]
        if not missed and not self._answered_topics:
            self.answer.set_result(answer)
            return
        self._answered_topics += [each for each in topics if _field(each, "error_code") != ErrorCode.NOT_CONTROLLER]
        self._other_topics = missed
        if not missed:
            self.answer.set_result(self._all_topics())
            return
        names = {_field(each, "name") for each in missed}
        self._request = request = copy(self._request)
        setattr(request, "topics", [each for each in request.topics if each.name in names])  # noqa: B010
        self._encoded = None
        self._problem = "the controller is moving"
        self._retry()

    def _all_topics(self) -> Body:
        return {"topics": [*self._answered_topics, *self._other_topics]}

    def _retry(self) -> None:
        if self.answer.done():
            return
        loop = self._ctx.services.loop
        if loop.time() >= self._deadline and self._answered_topics:
            self.answer.set_result(self._all_topics())
            return
        if loop.time() >= self._deadline:
            self.answer.set_exception(
                BrokerError(ErrorCode.NOT_CONTROLLER, f"the active controller did not answer: {self._problem}")
            )
            return
        loop.call_later(RETRY_MS / 1000, self._try)

    def _on_behalf_of(self) -> str:
        """Return the original client, where the controller needs it."""
        if self._ctx.services.quotas is None:
            return ""
        from broker_embedded.server.requests.requester import on_behalf_of

        return on_behalf_of(self._ctx.connection, self._ctx.client_id)

    def _body(self) -> bytes:
        if self._encoded is None:
            self._encoded = codec.encode_request(self._key, self._ctx.api_version, self._request)
        return self._encoded
