"""Vote (key 52), versions 0-2: a voter of the metadata quorum asks for this node's vote; from 2 on also whether it
would get it (pre-vote, KIP-996).

The vote is on the disk before it is answered. Directory ids are not compared: the voters are static and known by their
node ids.
"""

from __future__ import annotations

from broker_embedded.server.requests.registry import RequestContext, Response
from ottla_wire.protocol.message import Message


def handle(ctx: RequestContext, request: Message) -> Response:
    return ctx.broker.quorum.handle_vote(request)
