"""ShareFetch (key 78), versions 1 to 2: acquire records for a member of a share group, and settle earlier ones.

The request opens, continues or closes a share session (epoch 0, 1 and on, -1), which ends with its connection: what the
member holds is then available to others at once. Acknowledgements are written before they are answered. Without records
to acquire it waits for max_wait_ms; an append or a record that is available again ends the wait. Whole batches are
acquired up to max_records, or exactly so many with `share_acquire_mode` 1 (version 2, KIP-1206). Control batches, and
with `share.isolation.level=read_committed` aborted ones, are not delivered. A renewal (2, KIP-1222) fetches nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import Promise
from broker_embedded.server.requests.context import Body, RequestContext, Response
from broker_embedded.server.share.acknowledging import Acknowledgements
from broker_embedded.server.share.needs import leader_fields, session_key, share_response
from broker_embedded.server.share.operation import ShareFetch
from broker_embedded.share.session import FINAL_EPOCH, OPENING_EPOCH, SessionKey, ShareSession, TopicIdPartition
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.share.needs import ShareNeeds


def handle(ctx: RequestContext[ShareNeeds], request: Message) -> Response:
    key = session_key(ctx, request)
    is_renewal = ctx.api_version >= 2 and request.is_renew_ack
    if is_renewal:
        _check_renewal(request)
    session = _session(ctx, key, request)
    acknowledgements = Acknowledgements(ctx, key, is_renewal=is_renewal)
    promise: Promise[Body] = Promise()
    shows_all = request.share_session_epoch == OPENING_EPOCH

    def body(found: dict[TopicIdPartition, dict[str, Any]], throttle_ms: int = 0) -> Body:
        if shows_all:
            assert session is not None
            found = {**{partition: {} for partition in session.partitions}, **found}
        return {**_body(ctx, key, found, acknowledgements), "throttle_time_ms": throttle_ms}

    def acknowledged() -> None:
        if promise.done():
            return
        if session is None:
            ctx.services.shares.end_session(key)
        if session is None or is_renewal:
            promise.set_result(body({}))
        else:
            ShareFetch(ctx, request, session, promise, body).run(must_answer=acknowledgements.have_failed)

    acknowledgements.start(request.topics, acknowledged)
    return promise.result() if promise.done() and promise.exception() is None else promise


def _session(ctx: RequestContext[ShareNeeds], key: SessionKey, request: Message) -> ShareSession | None:
    """Return the session with the partitions of the request, None if it ends. Raises BrokerError."""
    shares = ctx.services.shares
    epoch = request.share_session_epoch
    if epoch == FINAL_EPOCH:
        shares.sessions.find(key)
        return None
    if epoch == OPENING_EPOCH:
        if any(each.acknowledgement_batches for topic in request.topics for each in topic.partitions):
            raise BrokerError(ErrorCode.INVALID_REQUEST, "a request that opens a share session acknowledges nothing")
        shares.end_session(key)
        limit = ctx.services.config.group_share_max_share_sessions
        session = shares.sessions.open(key, ctx.connection, limit=limit)
    else:
        session = shares.sessions.resume(key, epoch, ctx.connection)
    session.add((bytes(topic.topic_id), each.partition_index) for topic in request.topics for each in topic.partitions)
    session.forget(
        (bytes(topic.topic_id), number) for topic in request.forgotten_topics_data for number in topic.partitions
    )
    return session


def _check_renewal(request: Message) -> None:
    asked = {
        name: getattr(request, name)
        for name in ("max_wait_ms", "min_bytes", "max_bytes", "max_records")
        if getattr(request, name) > 0
    }
    if asked:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"a renewal fetches nothing: found {asked}, wanted 0")


def _body(
    ctx: RequestContext[ShareNeeds],
    key: SessionKey,
    found: dict[TopicIdPartition, dict[str, Any]],
    acknowledgements: Acknowledgements,
) -> Body:
    partitions: dict[TopicIdPartition, Body] = {}
    for partition in {**acknowledgements.results, **found}:
        error, message = acknowledgements.results.get(partition, (ErrorCode.NONE, ""))
        partitions[partition] = {
            "error_code": 0,
            "error_message": None,
            "acknowledge_error_code": int(error),
            "acknowledge_error_message": message or None,
            "records": b"",  # librdkafka refuses null
            "acquired_records": [],
            **leader_fields(ctx, *partition, error),
            **found.get(partition, {}),
        }
    return share_response(ctx, key, partitions)
