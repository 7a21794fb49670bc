"""EndQuorumEpoch (key 54), versions 0-1: the leader of the metadata quorum resigns, because it stops or has lost its
majority.

The first of the successors it names stands for election at once, the others a little later, one after the other.
"""

from __future__ import annotations

from broker_embedded.server.requests.registry import RequestContext, Response
from ottla_wire.protocol.message import Message


def handle(ctx: RequestContext, request: Message) -> Response:
    return ctx.broker.quorum.handle_end_quorum_epoch(request)
