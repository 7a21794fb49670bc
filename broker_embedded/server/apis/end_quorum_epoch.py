"""EndQuorumEpoch (key 54), versions 0-1: the leader of the metadata quorum resigns, because it stops or has lost its
majority.

The first of the successors it names stands for election at once, the others a little later, one after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.server.requests.context import RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasQuorum


def handle(ctx: RequestContext[HasQuorum], request: Message) -> Response:
    return ctx.services.quorum.handle_end_quorum_epoch(request)
