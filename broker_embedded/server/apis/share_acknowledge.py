"""ShareAcknowledge (key 79), versions 1 to 2: settle records that a member of a share group holds.

Accept, release and reject are written before they are answered; all records of a partition are changed, or none. A
record that the member does not hold is INVALID_RECORD_STATE. Version 2 renews locks as well (KIP-1222). The request has
the next epoch of the member's share session, as ShareFetch; -1 closes the session, and the rest is released.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import Promise
from broker_embedded.server.handling.endpoints import endpoints_of
from broker_embedded.server.requests.context import Body, RequestContext, Response
from broker_embedded.server.share.acknowledging import Acknowledgements
from broker_embedded.server.share.needs import leader_fields, session_key
from broker_embedded.share.session import FINAL_EPOCH, OPENING_EPOCH, SessionKey
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.share.needs import ShareNeeds


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    return {"error_code": int(error.code), "error_message": error.message or None, "responses": []}


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
        if not promise.done():
            promise.set_result(_body(ctx, key, acknowledgements))

    acknowledgements.start(request.topics, acknowledged)
    return promise.result() if promise.done() and promise.exception() is None else promise


def _body(ctx: RequestContext[ShareNeeds], key: SessionKey, acknowledgements: Acknowledgements) -> Body:
    topics: dict[bytes, list[dict[str, Any]]] = {}
    leaders: set[int] = set()
    for (topic_id, number), (error, message) in acknowledgements.results.items():
        fields = leader_fields(ctx, topic_id, number, error)
        if fields:
            leaders.add(fields["current_leader"]["leader_id"])
        topics.setdefault(topic_id, []).append(
            {"partition_index": number, "error_code": int(error), "error_message": message or None, **fields}
        )
    settings, _ = ctx.services.shares.settings_of(key.group_id)
    return {
        "throttle_time_ms": 0,
        "error_code": 0,
        "error_message": None,
        "acquisition_lock_timeout_ms": settings.share_record_lock_duration_ms,
        "responses": [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in topics.items()],
        "node_endpoints": endpoints_of(ctx.services.metadata.image, leaders),
    }
