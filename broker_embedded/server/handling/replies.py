"""Promises of response bodies: of what a coordinator replies, and of the results of several parts."""

from __future__ import annotations

from typing import Any

from broker_embedded.common.promises import Promise
from broker_embedded.coordinator.runtime.reply import Reply
from broker_embedded.server.requests.context import Body


def response_of(reply: Reply[Any]) -> Body | Promise[Body]:
    """Return the body if the coordinator has responded, else a promise of it. A disconnected client gets none."""
    if reply.body is not None:
        return reply.body
    promise: Promise[Body] = Promise()

    def settled(body: Body) -> None:
        if not promise.done():
            promise.set_result(body)

    reply.listen(settled)
    return promise


class BodyOfParts:
    """A promise of a body, resolved when all of its parts are done."""

    def __init__(self) -> None:
        self._open = 1  # the request itself, until all its parts have begun
        self._body: Body = {}
        self._promise: Promise[Body] = Promise()

    def begin_part(self) -> None:
        self._open += 1

    def end_part(self) -> None:
        self._open -= 1
        if self._open == 0 and not self._promise.done():
            self._promise.set_result(self._body)

    def when_complete(self, body: Body) -> Promise[Body]:
        """Return the promise of `body`, whose parts are changed in place. No part begins any more."""
        self._body = body
        self.end_part()
        return self._promise
