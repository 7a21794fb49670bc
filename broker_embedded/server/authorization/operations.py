"""Authorized-operations bit fields (KIP-430), and the guards of APIs with little else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_embedded.metadata.acls import CLUSTER_NAME, AclOperation, AclResource
from broker_embedded.security.authorized_operations import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    NOT_ASKED,
    TOPIC_OPERATIONS,
)
from broker_embedded.security.authorizer import Rights
from broker_embedded.security.refusal import refusal
from broker_embedded.server.authorization.guards import amended, with_fields
from ottla_wire.protocol import ApiKey
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.context import Body, Handler, RequestContext, Response
    from broker_embedded.server.requests.services import Services

_OPERATIONS = {
    resource: tuple(operation for operation in AclOperation if bits >> operation & 1)
    for resource, bits in (
        (AclResource.TOPIC, TOPIC_OPERATIONS),
        (AclResource.GROUP, GROUP_OPERATIONS),
        (AclResource.CLUSTER, CLUSTER_OPERATIONS),
    )
}


def operations_on(rights: Rights, resource: AclResource, name: str) -> int:
    """Return the allowed operations as bits."""
    return sum(1 << each for each in _OPERATIONS[resource] if rights.allows(each, resource, name))


def operations_on_cluster(rights: Rights) -> int:
    """Return the allowed operations on the cluster; none without DESCRIBE on the cluster."""
    if not rights.allows_on_cluster(AclOperation.DESCRIBE):
        return 0
    return operations_on(rights, AclResource.CLUSTER, CLUSTER_NAME)


def describe_cluster(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    """DescribeCluster: allowed for all clients, with their own operations."""
    if not request.include_cluster_authorized_operations:
        return handler(ctx, request)
    own = operations_on_cluster(rights)
    answer = handler(ctx, request)
    return amended(ctx, ApiKey.DESCRIBE_CLUSTER, answer, lambda body: {**body, "cluster_authorized_operations": own})


def describe_topic_partitions(
    rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler
) -> Response:
    """DescribeTopicPartitions: other topics are left out of all, and refused if named."""
    names = [topic.name for topic in request.topics] or list(ctx.services.metadata.image.topics)
    allowed = {name for name in names if rights.allows(AclOperation.DESCRIBE, AclResource.TOPIC, name)}
    first = "" if request.cursor is None else request.cursor.topic_name
    refused: list[Body] = []
    for name in dict.fromkeys(topic.name for topic in request.topics):
        if name in allowed or name < first:
            continue
        error = refusal(rights, AclOperation.DESCRIBE, AclResource.TOPIC, name)
        refused.append({"error_code": int(error.code), "name": name, "topic_id": bytes(16)})
    if not allowed:
        return {"topics": refused, "next_cursor": None}

    def amend(body: Body) -> Body:
        for topic in body["topics"]:
            topic["topic_authorized_operations"] = operations_on(rights, AclResource.TOPIC, topic["name"])
        return {**body, "topics": [*body["topics"], *refused]}

    named = with_fields(request, topics=[_NamedTopic(name) for name in allowed])
    return amended(ctx, ApiKey.DESCRIBE_TOPIC_PARTITIONS, handler(ctx, named), amend)


class _NamedTopic:
    """A topic of a request, as far as its handler looks."""

    def __init__(self, name: str) -> None:
        self.name = name


def of_group(rights: Rights, group: dict[str, Any]) -> None:
    """Make the field of a described group true, if it was asked for."""
    if group["authorized_operations"] != NOT_ASKED:
        group["authorized_operations"] = operations_on(rights, AclResource.GROUP, group["group_id"])
