"""BeginQuorumEpoch (key 53), versions 0-1: the new leader of the metadata quorum announces itself to a voter, which
then fetches.

Repeated while the voter does not fetch. Endpoints are not exchanged: each node has the addresses of its cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.server.requests.context import RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasQuorum


def handle(ctx: RequestContext[HasQuorum], request: Message) -> Response:
    return ctx.services.quorum.handle_begin_quorum_epoch(request)
