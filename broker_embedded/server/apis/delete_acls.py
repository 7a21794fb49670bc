"""DeleteAcls (key 31), versions 1 to 3: every ACL that a filter matches; each filter has a result that lists them.

SECURITY_DISABLED without an authorizer, as on a Kafka broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import map_result
from broker_embedded.controller.acls import Deleted
from broker_embedded.metadata.acls import AclBinding, AclFilter
from broker_embedded.server.handling.no_authorizer import nothing_to_change
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasAuthorization, HasController

    class Needs(HasController, HasAuthorization, Protocol): ...


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    return _answer([error] * len(request.filters))


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    if ctx.services.authorization is None:
        raise nothing_to_change()
    filters = [
        AclFilter(
            resource=each.resource_type_filter,
            name=each.resource_name_filter,
            pattern=each.pattern_type_filter,
            principal=each.principal_filter,
            host=each.host_filter,
            operation=each.operation,
            permission=each.permission_type,
        )
        for each in request.filters
    ]
    return map_result(ctx.services.controller.delete_acls(filters), _answer)


def _answer(results: list[Deleted]) -> Body:
    return {"throttle_time_ms": 0, "filter_results": [_result(each) for each in results]}


def _result(result: Deleted) -> Body:
    if isinstance(result, BrokerError):
        return {"error_code": int(result.code), "error_message": result.message, "matching_acls": []}
    return {"error_code": 0, "error_message": None, "matching_acls": [_deleted(acl) for acl in result]}


def _deleted(acl: AclBinding) -> Body:
    return {"error_code": 0, "error_message": None, **acl.fields()}
