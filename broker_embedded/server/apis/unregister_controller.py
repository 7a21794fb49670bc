"""UnregisterController (key 94), version 0: forget a controller that will not come back.

Controllers are not registered here: they are the quorum's voters, as the cluster was started with them. So the active
one is refused as by Kafka, and any other one is not registered. Below metadata.version 4.4-IV2 the request is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.controller.features import has_unregistered_controllers
from broker_embedded.server.requests.context import RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasController


def handle(ctx: RequestContext[HasController], request: Message) -> Response:
    controller = ctx.services.controller
    if request.controller_id == controller.leader_id:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active.")
    if not has_unregistered_controllers(controller.image):
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller unregistration.",
        )
    raise BrokerError(
        ErrorCode.CONTROLLER_ID_NOT_REGISTERED, f"Controller ID {request.controller_id} is not currently registered"
    )
