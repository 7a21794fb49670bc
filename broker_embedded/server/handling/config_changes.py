"""Shared by AlterConfigs and IncrementalAlterConfigs: from request resources to the controller and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import map_result
from broker_embedded.controller.configs import CORDONED
from broker_embedded.controller.requests import ConfigChange, ConfigOperation
from broker_embedded.metadata.records import ResourceType
from broker_embedded.server.handling.replies import error_fields
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasController, HasLogs, HasNodeId

    class HasOwnDirs(HasNodeId, HasLogs, Protocol): ...


Operations = list[tuple[str, ConfigOperation, str | None]]


def change_configs(
    ctx: RequestContext[HasController], request: Message, operations: Sequence[Operations], *, replaces_all: bool
) -> Response:
    """Change every resource of the request on its own; the response names them in order."""
    outcomes: dict[int, BrokerError | None] = {}
    changes: dict[int, ConfigChange] = {}
    counts = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    for index, (resource, wanted) in enumerate(zip(request.resources, operations, strict=True)):
        try:
            kind = ResourceType(resource.resource_type)
        except ValueError:
            outcomes[index] = BrokerError(
                ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} is unknown"
            )
            continue
        if counts[resource.resource_type, resource.resource_name] > 1:
            outcomes[index] = BrokerError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            continue
        changes[index] = ConfigChange(
            resource_type=kind, resource_name=resource.resource_name, operations=wanted, replaces_all=replaces_all
        )

    def answer(results: list[BrokerError | None]) -> Body:
        outcomes.update(zip(changes, results, strict=True))
        return {
            "responses": [_response(resource, outcomes.get(index)) for index, resource in enumerate(request.resources)]
        }

    changed = ctx.services.controller.change_configs(list(changes.values()), validate_only=request.validate_only)
    return map_result(changed, answer)


def refuse_unknown_dirs(ctx: RequestContext[HasOwnDirs], request: Message) -> None:
    """Refuse log directories that this broker does not have, before the controller gets the request: it does not know
    them."""
    for resource in request.resources:
        if resource.resource_type != ResourceType.BROKER or resource.resource_name != str(ctx.services.node_id):
            continue
        for config in resource.configs:
            if config.name != CORDONED:
                continue
            known = (*ctx.services.logs.directories.paths, "*")
            given = (config.value or "").split(",")
            unknown = [path for path in map(str.strip, given) if path and path.rstrip("/") not in known]
            if unknown:
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST,
                    f"All entries in {CORDONED} must be present in log.dirs or log.dir. Missing entries :"
                    f" {', '.join(unknown)}; wanted some of {', '.join(known)}",
                )


def refuse_all(request: Message, version: int, error: BrokerError) -> Body:
    """Return the response for a request that could not be parsed at all."""
    return {"responses": [_response(resource, error) for resource in request.resources]}


def _response(resource: Message, error: BrokerError | None) -> Body:
    return {
        **error_fields(error),
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }
