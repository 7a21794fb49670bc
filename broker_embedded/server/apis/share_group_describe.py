"""ShareGroupDescribe (key 77), version 1: epochs, members and their assignments (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_embedded.server.handling.group_bodies import describe_groups
from broker_embedded.server.requests.context import RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasGroups, HasMetadata

    class Needs(HasMetadata, HasGroups, Protocol): ...


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    groups = ctx.services.groups
    return describe_groups(
        ctx, request, lambda group_id: groups.shard_of(group_id).share, assignor=lambda group: "simple"
    )
