"""BeginQuorumEpoch (key 53), versions 0-1: the new leader of the metadata quorum tells a voter, which then fetches.

Repeated while the voter does not fetch. Endpoints are not exchanged: each node has the addresses of its cluster.
"""

from __future__ import annotations

from broker_embedded.server.requests.registry import RequestContext, Response
from ottla_wire.protocol.message import Message


def handle(ctx: RequestContext, request: Message) -> Response:
    return ctx.broker.quorum.handle_begin_quorum_epoch(request)
