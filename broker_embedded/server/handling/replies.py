"""From a coordinator's reply to what the dispatcher takes."""

from __future__ import annotations

from typing import Any

from broker_embedded.common.promises import Promise
from broker_embedded.coordinator.runtime.reply import Reply
from broker_embedded.server.requests.context import Body


def response_of(reply: Reply[Any]) -> Body | Promise[Body]:
    """The body if the coordinator has answered, else a promise of it. Who has gone away is not told."""
    if reply.body is not None:
        return reply.body
    promise: Promise[Body] = Promise()

    def settled(body: Body) -> None:
        if not promise.done():
            promise.set_result(body)

    reply.listen(settled)
    return promise
