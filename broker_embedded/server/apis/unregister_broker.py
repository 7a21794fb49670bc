"""UnregisterBroker (key 64), version 0: forget a broker that will not come back.

Its replicas stay assigned to it until they are reassigned. A broker that is alive registers again, with a new epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.promises import map_result
from broker_embedded.server.requests.context import RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasController


def handle(ctx: RequestContext[HasController], request: Message) -> Response:
    unregistered = ctx.services.controller.lives.unregister(request.broker_id)
    return map_result(unregistered, lambda _: {"error_code": 0, "error_message": None})
