"""Building blocks of guards: checks, refusals, and responses with a refused part."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import map_result
from broker_embedded.metadata.acls import CLUSTER_NAME, AclOperation, AclResource
from broker_embedded.security.authorizer import Rights
from broker_embedded.security.refusal import refusal, require
from ottla_wire.protocol import ApiKey, codec
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.context import Body, Handler, RequestContext, Response
    from broker_embedded.server.requests.services import Services

Guard = Callable[[Rights, "RequestContext[Services]", Message, "Handler"], "Response"]
"""Answers in the handler's place, or lets it answer. BrokerError refuses the whole request."""


def require_on_cluster(rights: Rights, *any_of: AclOperation) -> None:
    """Require at least one of the operations."""
    if not any(map(rights.allows_on_cluster, any_of)):
        raise refusal(rights, any_of[-1], AclResource.CLUSTER, CLUSTER_NAME)


def anybody(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    """Allow every connected client."""
    return handler(ctx, request)


def on_cluster(*any_of: AclOperation) -> Guard:
    """Return a guard that requires an operation on the cluster, or one of several, for the whole request."""

    def guard(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
        require_on_cluster(rights, *any_of)
        return handler(ctx, request)

    return guard


def on_resource(operation: AclOperation, resource: AclResource, field: str) -> Guard:
    """Return a guard that requires the operation on the resource named by a field of the request."""

    def guard(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
        require(rights, operation, resource, getattr(request, field))
        return handler(ctx, request)

    return guard


def on_each(operation: AclOperation, resource: AclResource, array: str, field: str | None = None) -> Guard:
    """Return a guard that requires the operation on every resource of an array; `field` of an element is its name."""

    def guard(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
        for each in getattr(request, array) or ():
            require(rights, operation, resource, each if field is None else getattr(each, field))
        return handler(ctx, request)

    return guard


def both(first: Guard, second: Guard) -> Guard:
    """Return a guard that asks two guards, one after the other."""
    return lambda rights, ctx, request, handler: first(
        rights, ctx, request, lambda ctx, request: second(rights, ctx, request, handler)
    )


def sort_names(
    rights: Rights, operation: AclOperation, resource: AclResource, names: Iterable[str]
) -> tuple[list[str], list[tuple[str, BrokerError]]]:
    """Split the names of resources into allowed and refused ones."""
    allowed: list[str] = []
    refused: list[tuple[str, BrokerError]] = []
    for name in names:
        if rights.allows(operation, resource, name):
            allowed.append(name)
        else:
            refused.append((name, refusal(rights, operation, resource, name)))
    return allowed, refused


def only_described(rights: Rights, resource: AclResource, bodies: Iterable[Body], field: str) -> list[Body]:
    """Return the parts of a response whose resource, named by `field`, may be described."""
    return [each for each in bodies if rights.allows(AclOperation.DESCRIBE, resource, each[field])]


def with_fields(request: Message, **fields: Any) -> Message:
    """Return a copy of the request with other values. The original is kept for a response that refuses all of it."""
    changed = copy.copy(request)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def amended(ctx: RequestContext[Services], api: ApiKey, answer: Response, amend: Callable[[Body], Body]) -> Response:
    """Return the handler's response with a change, immediate or deferred. A response encoded by another node is decoded
    first.
    """

    def change(body: Body | bytes | None) -> Body | None:
        if isinstance(body, bytes):
            body = codec.decode_response(api, ctx.api_version, body).to_dict()
        return None if body is None else amend(body)

    if answer is None or isinstance(answer, (dict, bytes)):
        return change(answer)
    return map_result(answer, change, cancels_source=True)  # type: ignore[arg-type]


def adding(
    ctx: RequestContext[Services], api: ApiKey, answer: Response, field: str, refused: Iterable[Any]
) -> Response:
    """Return the response with the refused parts behind the others."""
    more = list(refused)
    return amended(ctx, api, answer, lambda body: {**body, field: [*body[field], *more]})
