"""DescribeConfigs (key 32), versions 1-4: settings of topics, brokers and groups, where each is from, and its synonyms.

Not done: broker loggers and client metrics (they are described as empty).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.metadata.records import ResourceType
from broker_embedded.server.handling import config_view
from broker_embedded.server.handling.config_view import SettingView
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasLogs, HasMetadata, HasNodeId, HasStaticConfig

    class Needs(HasNodeId, HasMetadata, HasLogs, HasStaticConfig, Protocol): ...


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    return {"results": [_resource(ctx, request, resource) for resource in request.resources]}


def _resource(ctx: RequestContext[Needs], request: Message, resource: Message) -> Body:
    body: Body = {
        "error_code": 0,
        "error_message": None,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }
    try:
        views = _views(ctx, resource)
    except BrokerError as error:
        body.update(error_code=int(error.code), error_message=error.message)
        return body
    keys = set(resource.configuration_keys) if resource.configuration_keys else None  # none named: all, as in Kafka
    body["configs"] = [_setting(view, request) for view in views if keys is None or view.name in keys]
    return body


def _views(ctx: RequestContext[Needs], resource: Message) -> list[SettingView]:
    name = resource.resource_name
    image = ctx.services.metadata.image
    try:
        kind = ResourceType(resource.resource_type)
    except ValueError:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} is unknown") from None
    if kind is ResourceType.TOPIC:
        if name not in image.topics:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        return config_view.topic_settings(ctx.services, image.config_overrides(ResourceType.TOPIC, name))
    if kind is ResourceType.BROKER:
        if name and name != str(ctx.services.node_id):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"this is broker {ctx.services.node_id}; ask broker {name} about its settings",
            )
        return config_view.broker_settings(ctx.services, cluster_wide=not name)
    if kind is ResourceType.GROUP:
        if not name:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return config_view.group_settings(ctx.services, image.config_overrides(ResourceType.GROUP, name))
    return []


def _setting(view: SettingView, request: Message) -> Body:
    return {
        "name": view.name,
        "value": view.value,
        "read_only": view.read_only,
        "config_source": int(view.source),
        "is_sensitive": view.is_sensitive,
        "synonyms": (
            [{"name": name, "value": value, "source": int(source)} for name, value, source in view.synonyms]
            if request.include_synonyms
            else []
        ),
        "config_type": int(view.type),
        "documentation": view.doc if request.include_documentation else None,
    }
