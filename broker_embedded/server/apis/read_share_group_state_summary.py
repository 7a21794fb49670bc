"""ReadShareGroupStateSummary (key 87), versions 0 to 1: start offsets of share partitions (KIP-932).

Asked by the group coordinator for operators. Version 1 has the number of settled records (KIP-1226). An unknown state
has start offset -1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_embedded.server.requests.context import RequestContext, Response
from broker_embedded.server.share.state_answers import answer, failed
from broker_embedded.share.state_requests import Summarize
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasShares


on_error = failed


def handle(ctx: RequestContext[HasShares], request: Message) -> Response:
    return answer(ctx, request, lambda each: Summarize(), _fields)


def _fields(summary: Any) -> dict[str, Any]:
    return {
        "state_epoch": summary.state_epoch,
        "leader_epoch": summary.leader_epoch,
        "start_offset": summary.start_offset,
        "delivery_complete_count": summary.complete_count,
    }
