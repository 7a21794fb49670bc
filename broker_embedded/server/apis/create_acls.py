"""CreateAcls (key 30), versions 1 to 3: valid ones are created, each has a result. Duplicates count as one.

A number that only filters may have (ANY, MATCH) fails the whole request with UNKNOWN_SERVER_ERROR, as Kafka's. In force
on a broker when its metadata has them. SECURITY_DISABLED without an authorizer, as on a Kafka broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import map_result
from broker_embedded.controller.acls import NewAcl
from broker_embedded.controller.partition_requests import Outcome
from broker_embedded.metadata.acls import ANY, PatternType
from broker_embedded.server.handling.no_authorizer import nothing_to_change
from broker_embedded.server.handling.replies import error_fields
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasAuthorization, HasController

    class Needs(HasController, HasAuthorization, Protocol): ...


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    return _answer([error] * len(request.creations))


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    if ctx.services.authorization is None:
        raise nothing_to_change()
    if any(map(_is_filter, request.creations)):
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "ANY and MATCH are for filters, not for ACLs")
    wanted = [
        NewAcl(
            resource=each.resource_type,
            name=each.resource_name,
            pattern=each.resource_pattern_type,
            principal=each.principal,
            host=each.host,
            operation=each.operation,
            permission=each.permission_type,
        )
        for each in request.creations
    ]
    return map_result(ctx.services.controller.create_acls(wanted), _answer)


def _is_filter(creation: Message) -> bool:
    chosen = (
        creation.resource_type,
        creation.resource_pattern_type,
        creation.operation,
        creation.permission_type,
    )
    return ANY in chosen or creation.resource_pattern_type == PatternType.MATCH


def _answer(outcomes: list[Outcome]) -> Body:
    return {
        "throttle_time_ms": 0,
        "results": [error_fields(error) for error in outcomes],
    }
