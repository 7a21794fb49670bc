"""Converts a coordinator's reply for the dispatcher."""

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
