"""Vote (key 52), versions 0-2: a voter of the metadata quorum asks for this node's vote; from 2 on also whether it
would get it (pre-vote, KIP-996).

The vote is on disk before the response. Directory ids are not compared: the voters are static and known by their node
ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.server.requests.context import RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasQuorum


def handle(ctx: RequestContext[HasQuorum], request: Message) -> Response:
    return ctx.services.quorum.handle_vote(request)
