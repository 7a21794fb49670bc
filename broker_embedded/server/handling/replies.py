"""Promises of response bodies: of what a coordinator replies, and of the results of several parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import Promise, settle
from broker_embedded.coordinator.runtime.reply import Reply
from broker_embedded.server.requests.context import Body


def response_of(reply: Reply[Any]) -> Body | Promise[Body]:
    """Return the body if the coordinator has responded, else a promise of it. A disconnected client gets none."""
    if reply.body is not None:
        return reply.body
    promise: Promise[Body] = Promise()
    reply.listen(partial(settle, promise))
    return promise


def error_fields(error: BrokerError | None) -> Body:
    """Return code and message of a result, which has succeeded with None."""
    if error is None:
        return {"error_code": 0, "error_message": None}
    return {"error_code": int(error.code), "error_message": error.message or None}


class BodyOfParts:
    """A promise of a body, resolved when all of its parts are done."""

    def __init__(self) -> None:
        self._open = 1  # the request itself, until all its parts have begun
        self._body: Body = {}
        self._promise: Promise[Body] = Promise()

    def part(self, **fields: Any) -> tuple[Body, Callable[[Body], None]]:
        """Return a part, which begins with these fields, and the function that completes it with more."""
        body: Body = fields
        self._open += 1

        def complete(more: Body) -> None:
            body.update(more)
            self._end_part()

        return body, complete

    def _end_part(self) -> None:
        self._open -= 1
        if self._open == 0:
            settle(self._promise, self._body)

    def when_complete(self, body: Body) -> Promise[Body]:
        """Return the promise of `body`, whose parts are changed in place. No part begins any more."""
        self._body = body
        self._end_part()
        return self._promise
