"""DeleteShareGroupState (key 86), version 0: forget the state of share partitions (KIP-932).

Asked by the group coordinator. A state that is not there is forgotten already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.server.requests.context import RequestContext, Response
from broker_embedded.server.share.state_answers import answer, failed
from broker_embedded.share.state_requests import Delete
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasShares


on_error = failed


def handle(ctx: RequestContext[HasShares], request: Message) -> Response:
    return answer(ctx, request, lambda each: Delete())
