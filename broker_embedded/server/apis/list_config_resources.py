"""ListConfigResources (key 74), versions 0-1: the resources that have settings. Version 0 lists client metrics only, of
which there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.metadata.records import ResourceType
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasMetadata


def handle(ctx: RequestContext[HasMetadata], request: Message) -> Response:
    if ctx.api_version == 0:
        wanted = {int(ResourceType.CLIENT_METRICS)}
    else:
        wanted = set(request.resource_types) or {int(kind) for kind in ResourceType}
    unknown = wanted - {int(kind) for kind in ResourceType}
    if unknown:
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"resource type {min(unknown)} is unknown")
    image = ctx.services.metadata.image
    names: dict[ResourceType, list[str]] = {
        ResourceType.GROUP: sorted(name for kind, name in image.configs if kind is ResourceType.GROUP),
        ResourceType.TOPIC: sorted(image.topics),
        ResourceType.BROKER: [str(node) for node in sorted(image.brokers)],
        ResourceType.BROKER_LOGGER: [str(node) for node in sorted(image.brokers)],
    }
    resources: list[Body] = [
        {"resource_name": name, "resource_type": int(kind)}
        for kind, listed in names.items()
        if kind in wanted
        for name in listed
    ]
    return {"error_code": 0, "config_resources": resources}
