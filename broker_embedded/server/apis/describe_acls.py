"""DescribeAcls (key 29), versions 1 to 3: the ACLs that a filter matches, as this broker's metadata has them.

SECURITY_DISABLED without an authorizer, as on a Kafka broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.metadata.acls import AclBinding, AclFilter, AclResource, PatternType
from broker_embedded.server.handling.no_authorizer import nothing_to_describe
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasAuthorization, HasMetadata

    class Needs(HasMetadata, HasAuthorization, Protocol): ...


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    if ctx.services.authorization is None:
        raise nothing_to_describe()
    wanted = AclFilter(
        resource=request.resource_type_filter,
        name=request.resource_name_filter,
        pattern=request.pattern_type_filter,
        principal=request.principal_filter,
        host=request.host_filter,
        operation=request.operation,
        permission=request.permission_type,
    )
    if not wanted.is_understood:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "the filter has a number that means nothing")
    patterns: dict[tuple[AclResource, str, PatternType], list[Body]] = {}
    for acl in ctx.services.metadata.image.acls.values():
        if wanted.matches(acl):
            patterns.setdefault((acl.resource, acl.name, acl.pattern), []).append(_entry(acl))
    return {
        "throttle_time_ms": 0,
        "error_code": 0,
        "error_message": None,
        "resources": [
            {"resource_type": int(resource), "resource_name": name, "pattern_type": int(pattern), "acls": acls}
            for (resource, name, pattern), acls in patterns.items()
        ],
    }


def _entry(acl: AclBinding) -> Body:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": int(acl.operation),
        "permission_type": int(acl.permission),
    }
