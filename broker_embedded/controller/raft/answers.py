"""Responses to fetches of the metadata log. Pure: a fetch changes nothing."""

from __future__ import annotations

from broker_embedded.controller.raft.log_view import LogView, divergence
from broker_embedded.controller.raft.messages import (
    ElectionRequest,
    EpochResponse,
    FetchAnswer,
    FetchRequest,
    VoteRequest,
    VoteResponse,
)
from ottla_wire.protocol import ErrorCode

ANY_EPOCH = -1


def answer_fetch(
    fetch: FetchRequest, *, log: LogView, epoch: int, leader_id: int, is_leader: bool, high_watermark: int
) -> FetchAnswer:
    """Return an error, the point of divergence (KIP-595), or whether the replica can fetch anything new."""
    error = _error(fetch, epoch=epoch, is_leader=is_leader, high_watermark=high_watermark)
    if error is not ErrorCode.NONE:
        return FetchAnswer(epoch=epoch, leader_id=leader_id, high_watermark=-1, error=error)
    is_replica = fetch.replica_id >= 0
    diverging = None
    if is_replica:
        diverging = divergence(log, fetch_offset=fetch.fetch_offset, last_fetched_epoch=fetch.last_fetched_epoch)
    end_offset = log.end_offset if is_replica else high_watermark
    has_news = diverging is not None or fetch.fetch_offset < end_offset or fetch.high_watermark < high_watermark
    return FetchAnswer(
        epoch=epoch,
        leader_id=leader_id,
        high_watermark=high_watermark,
        diverging=diverging,
        is_worth_sending=has_news,
    )


def _error(fetch: FetchRequest, *, epoch: int, is_leader: bool, high_watermark: int) -> ErrorCode:
    if fetch.epoch not in (epoch, ANY_EPOCH):
        return ErrorCode.FENCED_LEADER_EPOCH if fetch.epoch < epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
    if not is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    is_consumer = fetch.replica_id < 0
    if fetch.fetch_offset < 0 or (is_consumer and fetch.fetch_offset > high_watermark):
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return ErrorCode.NONE


def refuse_request(
    request: ElectionRequest, *, node_id: int, epoch: int, leader_id: int
) -> VoteResponse | EpochResponse:
    """Return a refusal with the current leader and epoch. A request of an older epoch gets FENCED_LEADER_EPOCH."""
    error = ErrorCode.FENCED_LEADER_EPOCH if request.epoch < epoch else ErrorCode.NONE
    if isinstance(request, VoteRequest):
        return VoteResponse(voter_id=node_id, epoch=epoch, leader_id=leader_id, granted=False, error=error)
    return EpochResponse(voter_id=node_id, epoch=epoch, leader_id=leader_id, error=error)
