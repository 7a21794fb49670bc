"""Guards of requests about the offsets of share groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.metadata.acls import AclOperation, AclResource
from broker_embedded.security.authorizer import Rights
from broker_embedded.security.refusal import require
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.context import Handler, RequestContext, Response
    from broker_embedded.server.requests.services import Services

_GROUP, _TOPIC = AclResource.GROUP, AclResource.TOPIC


def describe_offsets(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    """DescribeShareGroupOffsets: DESCRIBE on each group and on each topic that is named."""
    for group in request.groups:
        require(rights, AclOperation.DESCRIBE, _GROUP, group.group_id)
        for topic in group.topics or ():
            require(rights, AclOperation.DESCRIBE, _TOPIC, topic.topic_name)
    return handler(ctx, request)


def alter_offsets(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    """AlterShareGroupOffsets: READ on the group and on each topic."""
    require(rights, AclOperation.READ, _GROUP, request.group_id)
    for topic in request.topics:
        require(rights, AclOperation.READ, _TOPIC, topic.topic_name)
    return handler(ctx, request)


def delete_offsets(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    """DeleteShareGroupOffsets: DELETE on the group, READ on each topic."""
    require(rights, AclOperation.DELETE, _GROUP, request.group_id)
    for topic in request.topics:
        require(rights, AclOperation.READ, _TOPIC, topic.topic_name)
    return handler(ctx, request)
