"""DeleteGroups (key 42), versions 0 to 3: delete groups without members, and their offsets.

Version 3 has room for a message, which Kafka leaves empty.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.coordinator.runtime.reply import Reply
from broker_embedded.server.handling.replies import response_of
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasGroups

Errors = dict[str, ErrorCode]


def handle(ctx: RequestContext[HasGroups], request: Message) -> Response:
    reply: Reply[Errors] = Reply(_body)
    waiting = dict.fromkeys(request.groups_names)
    errors: Errors = {}

    def done(group_id: str, error: ErrorCode) -> None:
        errors[group_id] = error
        if len(errors) == len(waiting):
            reply.settle({name: errors[name] for name in waiting})

    if not waiting:
        reply.settle({})
    for group_id in waiting:
        try:
            shard = ctx.services.groups.shard_of_any(group_id)
        except BrokerError as error:
            done(group_id, error.code)
        else:
            shard.admin.delete_group(group_id, partial(done, group_id))
    return response_of(reply)


def _body(errors: Errors) -> Body:
    results = [
        {"group_id": group_id, "error_code": int(error), "error_message": None} for group_id, error in errors.items()
    ]
    return {"throttle_time_ms": 0, "results": results}
