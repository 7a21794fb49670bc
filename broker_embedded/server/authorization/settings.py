"""Guards of settings and log directories, which respond in their own way to unauthorized clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.metadata.acls import CLUSTER_NAME, AclOperation, AclResource
from broker_embedded.metadata.records import ResourceType
from broker_embedded.security.authorizer import Rights
from broker_embedded.security.refusal import refusal
from broker_embedded.server.authorization.guards import Guard, adding, with_fields
from broker_embedded.server.handling.replies import error_fields
from ottla_wire.protocol import ApiKey
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.context import Body, Handler, RequestContext, Response
    from broker_embedded.server.requests.services import Services


def _of_settings(api: ApiKey, operation: AclOperation, field: str) -> Guard:
    """Return a guard that requires the operation on the topics and groups named, and on the cluster for all other
    resources."""

    def refused(rights: Rights, resource: Message) -> BrokerError | None:
        if resource.resource_type == ResourceType.TOPIC:
            kind, name = AclResource.TOPIC, resource.resource_name
        elif resource.resource_type == ResourceType.GROUP:
            kind, name = AclResource.GROUP, resource.resource_name
        else:
            kind, name = AclResource.CLUSTER, CLUSTER_NAME
        return None if rights.allows(operation, kind, name) else refusal(rights, operation, kind, name)

    def guard(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
        allowed: list[Message] = []
        denied: list[Body] = []
        for resource in request.resources:
            error = refused(rights, resource)
            if error is None:
                allowed.append(resource)
            else:
                place = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
                denied.append({**error_fields(error), **place})
        return adding(ctx, api, handler(ctx, with_fields(request, resources=allowed)), field, denied)

    return guard


describe_configs = _of_settings(ApiKey.DESCRIBE_CONFIGS, AclOperation.DESCRIBE_CONFIGS, "results")
alter_configs = _of_settings(ApiKey.ALTER_CONFIGS, AclOperation.ALTER_CONFIGS, "responses")
incremental_alter_configs = _of_settings(ApiKey.INCREMENTAL_ALTER_CONFIGS, AclOperation.ALTER_CONFIGS, "responses")


def describe_log_dirs(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    """DescribeLogDirs: DESCRIBE on the cluster. Before version 3 there is no place for the error: nothing is listed."""
    if rights.allows_on_cluster(AclOperation.DESCRIBE):
        return handler(ctx, request)
    error = refusal(rights, AclOperation.DESCRIBE, AclResource.CLUSTER, CLUSTER_NAME)
    return {"throttle_time_ms": 0, "error_code": int(error.code), "results": []}
