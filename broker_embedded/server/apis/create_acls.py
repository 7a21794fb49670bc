"""CreateAcls (key 30), versions 1 to 3: those that can be are created, each has a result. Twice the same is one.

In force on a broker when its metadata has them. SECURITY_DISABLED without an authorizer, as on a Kafka broker.
"""

from __future__ import annotations

from broker_embedded.common.errors import BrokerError
from broker_embedded.controller.acls import NewAcl
from broker_embedded.controller.partition_requests import Outcome
from broker_embedded.server.futures import then
from broker_embedded.server.no_authorizer import NOTHING_TO_CHANGE
from broker_embedded.server.registry import Body, RequestContext, Response
from ottla_wire.protocol.message import Message


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    return _answer([error] * len(request.creations))


def handle(ctx: RequestContext, request: Message) -> Response:
    if ctx.broker.authorization is None:
        raise NOTHING_TO_CHANGE
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
    return then(ctx.broker.controller.create_acls(wanted), _answer)


def _answer(outcomes: list[Outcome]) -> Body:
    return {
        "throttle_time_ms": 0,
        "results": [
            {
                "error_code": 0 if error is None else int(error.code),
                "error_message": None if error is None else error.message,
            }
            for error in outcomes
        ],
    }
