"""WriteShareGroupState (key 85), versions 0 to 1: what a leader settled (KIP-932).

Answered when the records are on all in-sync replicas of `__share_group_state`. Version 1 counts settled records
(KIP-1226).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.coordinator.share.records import batches_of
from broker_embedded.server.requests.context import RequestContext, Response
from broker_embedded.server.share.state_answers import answer, failed
from broker_embedded.share.state_requests import Write
from broker_embedded.share.states import PERSISTED
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasShares


on_error = failed


def handle(ctx: RequestContext[HasShares], request: Message) -> Response:
    return answer(ctx, request, _write)


def _write(each: Message) -> Write:
    for batch in each.state_batches:
        in_order = 0 <= batch.first_offset <= batch.last_offset
        if batch.delivery_state not in PERSISTED or not in_order or batch.delivery_count < 0:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"found offsets {batch.first_offset} to {batch.last_offset} in state {batch.delivery_state} after"
                f" {batch.delivery_count} deliveries, wanted ascending offsets and a state that is written",
            )
    return Write(
        leader_epoch=each.leader_epoch,
        state_epoch=each.state_epoch,
        start_offset=each.start_offset,
        batches=batches_of(each.state_batches),
        complete_count=each.delivery_complete_count,
    )
