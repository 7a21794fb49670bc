"""ReadShareGroupState (key 84), version 0: the state of share partitions, for a new leader (KIP-932).

The read fences earlier leaders: a smaller leader epoch is FENCED_LEADER_EPOCH from then on. A state that was never
begun is INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_embedded.coordinator.share.records import batches_to_message
from broker_embedded.server.requests.context import RequestContext, Response
from broker_embedded.server.share.state_answers import answer, failed
from broker_embedded.share.state_requests import Read
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasShares


on_error = failed


def handle(ctx: RequestContext[HasShares], request: Message) -> Response:
    return answer(ctx, request, lambda each: Read(leader_epoch=each.leader_epoch), _fields)


def _fields(state: Any) -> dict[str, Any]:
    return {
        "state_epoch": state.state_epoch,
        "start_offset": state.start_offset,
        "state_batches": batches_to_message(state.batches),
    }
