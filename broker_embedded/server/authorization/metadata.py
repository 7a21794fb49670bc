"""The guard of Metadata: what may not be described is not there, unless it is named; and who may create what is not.

The existence of a topic that may not be described is not told: it is refused before anybody looks whether it is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_embedded.common.errors import BrokerError
from broker_embedded.metadata.acls import AclOperation, AclResource
from broker_embedded.security.authorizer import Rights
from broker_embedded.security.refusal import refusal
from broker_embedded.server.authorization.guards import amended, only_described, with_fields
from broker_embedded.server.authorization.operations import operations_on, operations_on_cluster
from ottla_wire.protocol import ZERO_UUID, ApiKey
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.context import Body, Handler, RequestContext, Response
    from broker_embedded.server.requests.services import Services

_TOPIC = AclResource.TOPIC
OPERATIONS_FROM, CLUSTER_OPERATIONS_UNTIL = 8, 10
FIRST_WITH_IDS = 12


def metadata(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    """Metadata: DESCRIBE on topics; CREATE on the cluster or on the topic to have a missing one created."""
    asks_for_all = request.topics is None or (ctx.api_version == 0 and not request.topics)
    if ctx.api_version < FIRST_WITH_IDS and not asks_for_all and any(each.name is None for each in request.topics):
        return handler(ctx, request)  # which refuses it, and looks at no topic
    allowed: list[Any] = []
    refused: list[Body] = []
    for topic in () if asks_for_all else request.topics:
        error = _refused(rights, ctx, request, topic)
        if error is None:
            allowed.append(topic)
        else:
            # Ids are no secret; what they stand for is.
            name = topic.name if topic.topic_id == ZERO_UUID else None
            refused.append({"error_code": int(error.code), "name": name, "topic_id": topic.topic_id})

    def amend(body: Body) -> Body:
        topics = body["topics"]
        if asks_for_all:
            topics = only_described(rights, _TOPIC, topics, "name")
        if ctx.api_version >= OPERATIONS_FROM and request.include_topic_authorized_operations:
            for each in topics:
                if each["name"] is not None:
                    each["topic_authorized_operations"] = operations_on(rights, _TOPIC, each["name"])
        body = {**body, "topics": [*topics, *refused]}
        if (
            OPERATIONS_FROM <= ctx.api_version <= CLUSTER_OPERATIONS_UNTIL
            and request.include_cluster_authorized_operations
        ):
            body["cluster_authorized_operations"] = operations_on_cluster(rights)
        return body

    if refused and not allowed and ctx.api_version == 0:  # where no topics are all topics
        return amended(ctx, ApiKey.METADATA, _only_brokers(ctx, request, handler), amend)
    asked = request if asks_for_all else with_fields(request, topics=allowed)
    return amended(ctx, ApiKey.METADATA, handler(ctx, asked), amend)


def _only_brokers(ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    answer = handler(ctx, with_fields(request, topics=[]))
    return amended(ctx, ApiKey.METADATA, answer, lambda body: {**body, "topics": []})


def _refused(rights: Rights, ctx: RequestContext[Services], request: Message, topic: Message) -> BrokerError | None:
    image = ctx.services.metadata.image
    name = topic.name if topic.topic_id == ZERO_UUID else image.topic_names.get(topic.topic_id)
    if name is None:
        return None
    if not rights.allows(AclOperation.DESCRIBE, _TOPIC, name):
        return refusal(rights, AclOperation.DESCRIBE, _TOPIC, name)
    creates = (
        name not in image.topics
        and request.allow_auto_topic_creation
        and ctx.services.config.auto_create_topics_enable
        and not rights.allows_on_cluster(AclOperation.CREATE)
        and not rights.allows(AclOperation.CREATE, _TOPIC, name)
    )
    return refusal(rights, AclOperation.CREATE, _TOPIC, name) if creates else None
