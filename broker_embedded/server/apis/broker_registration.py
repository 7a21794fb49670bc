"""BrokerRegistration (key 62), versions 0-4.

A broker joins, fenced until its heartbeats show that it has caught up. Another process under the same id is refused
with DUPLICATE_BROKER_REGISTRATION while the first one sends heartbeats. One listener is kept. Not done: the previous
broker epoch (KIP-966) is not looked at; instead a replica whose log directory has not come back does not count as in
sync.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import map_result
from broker_embedded.metadata.records import RegisterBroker, SupportedFeature
from broker_embedded.server.requests.context import RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasController


def handle(ctx: RequestContext[HasController], request: Message) -> Response:
    if not request.listeners:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "a broker needs a listener")
    if len(set(request.log_dirs)) != len(request.log_dirs):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "two log directories have the same id")
    listener = request.listeners[0]
    wanted = RegisterBroker(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=-1,  # given by the controller
        host=listener.host,
        port=listener.port,
        rack=request.rack,
        log_dirs=tuple(request.log_dirs),
        features=tuple(
            SupportedFeature(name=each.name, min_level=each.min_supported_version, max_level=each.max_supported_version)
            for each in request.features
        ),
    )
    registered = ctx.services.controller.lives.register(wanted, cluster_id=request.cluster_id)
    return map_result(registered, lambda epoch: {"error_code": 0, "broker_epoch": epoch})
