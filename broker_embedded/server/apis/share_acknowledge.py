"""ShareAcknowledge (key 79), versions 1 to 2: settle records that a member of a share group holds.

Accept, release and reject are written before they are answered; all records of a partition are changed, or none. A
record that the member does not hold is INVALID_RECORD_STATE. Version 2 renews locks as well (KIP-1222). The request has
the next epoch of the member's share session, as ShareFetch; -1 closes the session, and the rest is released.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import Promise, settle
from broker_embedded.server.requests.context import Body, RequestContext, Response
from broker_embedded.server.share.acknowledging import Acknowledgements
from broker_embedded.server.share.needs import leader_fields, session_key, share_response
from broker_embedded.share.session import FINAL_EPOCH, OPENING_EPOCH, SessionKey, TopicIdPartition
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.share.needs import ShareNeeds


def handle(ctx: RequestContext[ShareNeeds], request: Message) -> Response:
    key = session_key(ctx, request)
    shares = ctx.services.shares
    epoch = request.share_session_epoch
    if epoch == OPENING_EPOCH:
        raise BrokerError(
            ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a share session is opened by ShareFetch, not by ShareAcknowledge"
        )
    if epoch == FINAL_EPOCH:
        shares.sessions.find(key)
    else:
        shares.sessions.resume(key, epoch, ctx.connection)
    promise: Promise[Body] = Promise()
    acknowledgements = Acknowledgements(ctx, key, is_renewal=ctx.api_version >= 2 and request.is_renew_ack)

    def acknowledged() -> None:
        if epoch == FINAL_EPOCH:
            shares.end_session(key)
        settle(promise, _body(ctx, key, acknowledgements))

    acknowledgements.start(request.topics, acknowledged)
    return promise.result() if promise.done() and promise.exception() is None else promise


def _body(ctx: RequestContext[ShareNeeds], key: SessionKey, acknowledgements: Acknowledgements) -> Body:
    partitions: dict[TopicIdPartition, Body] = {}
    for partition, (error, message) in acknowledgements.results.items():
        fields = leader_fields(ctx, *partition, error)
        partitions[partition] = {"error_code": int(error), "error_message": message or None, **fields}
    return share_response(ctx, key, partitions)
