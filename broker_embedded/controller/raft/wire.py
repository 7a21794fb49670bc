"""Converts the quorum's messages to and from the bodies of Kafka's requests and responses.

One topic, one partition, no directory ids (they are zero: voters are known by their node ids, as with Kafka's static
voters) and no endpoints (each node has the addresses of its cluster).
"""

from __future__ import annotations

from typing import Any

from broker_embedded.common.types import CLUSTER_METADATA_TOPIC
from broker_embedded.controller.raft.fetches import METADATA_TOPIC_ID
from broker_embedded.controller.raft.log_view import EpochEnd
from broker_embedded.controller.raft.messages import (
    NO_LEADER,
    BeginQuorumEpochRequest,
    ElectionRequest,
    EndQuorumEpochRequest,
    EpochResponse,
    FetchAnswer,
    FetchRequest,
    FetchResponse,
    Request,
    VoteRequest,
    VoteResponse,
)
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

Body = dict[str, Any]

VERSIONS = {
    VoteRequest: (ApiKey.VOTE, 2),
    BeginQuorumEpochRequest: (ApiKey.BEGIN_QUORUM_EPOCH, 1),
    EndQuorumEpochRequest: (ApiKey.END_QUORUM_EPOCH, 1),
    FetchRequest: (ApiKey.FETCH, 18),
}
"""Versions sent, by kind. Fetch 18 carries the known high watermark (KIP-1166)."""

NO_DIRECTORY = bytes(16)
MAX_FETCH_BYTES = 8 * 1024 * 1024


# --- requests that are sent


def encode_request(request: Request, *, to: int, cluster_id: str | None, max_wait_ms: int) -> Body:
    """Return the body, for the version in `VERSIONS`."""
    if isinstance(request, FetchRequest):
        return _encode_fetch(request, cluster_id=cluster_id, max_wait_ms=max_wait_ms)
    partition: Body = {"partition_index": 0}
    if isinstance(request, VoteRequest):
        partition |= {
            "replica_epoch": request.epoch,
            "replica_id": request.candidate_id,
            "replica_directory_id": NO_DIRECTORY,
            "voter_directory_id": NO_DIRECTORY,
            "last_offset_epoch": request.last_epoch,
            "last_offset": request.end_offset,
            "pre_vote": request.pre_vote,
        }
    else:
        partition |= {"leader_id": request.leader_id, "leader_epoch": request.epoch}
    if isinstance(request, BeginQuorumEpochRequest):
        partition["voter_directory_id"] = NO_DIRECTORY
    elif isinstance(request, EndQuorumEpochRequest):
        partition["preferred_candidates"] = [
            {"candidate_id": node, "candidate_directory_id": NO_DIRECTORY} for node in request.successors
        ]
    body: Body = {
        "cluster_id": cluster_id,
        "topics": [{"topic_name": CLUSTER_METADATA_TOPIC, "partitions": [partition]}],
    }
    if not isinstance(request, EndQuorumEpochRequest):
        body["voter_id"] = to
    if not isinstance(request, VoteRequest):
        body["leader_endpoints"] = []
    return body


def _encode_fetch(request: FetchRequest, *, cluster_id: str | None, max_wait_ms: int) -> Body:
    partition = {
        "partition": 0,
        "current_leader_epoch": request.epoch,
        "fetch_offset": request.fetch_offset,
        "last_fetched_epoch": request.last_fetched_epoch,
        "log_start_offset": -1,
        "partition_max_bytes": MAX_FETCH_BYTES,
        "high_watermark": request.high_watermark,
    }
    return {
        "cluster_id": cluster_id,
        "replica_state": {"replica_id": request.replica_id, "replica_epoch": -1},
        "max_wait_ms": max_wait_ms,
        "min_bytes": 0,
        "max_bytes": MAX_FETCH_BYTES,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic_id": METADATA_TOPIC_ID, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


# --- requests that come in


def decode_request(
    kind: type[ElectionRequest], request: Message, *, node_id: int, cluster_id: str | None
) -> ElectionRequest | ErrorCode:
    """Return the message in a Vote, BeginQuorumEpoch or EndQuorumEpoch; an error if this node cannot be meant."""
    if cluster_id is not None and request.cluster_id not in (None, cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if "voter_id" in request.FIELDS and request.voter_id not in (-1, node_id):
        return ErrorCode.INVALID_VOTER_KEY
    topics = request.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return ErrorCode.INVALID_REQUEST
    each = topics[0].partitions[0]
    if topics[0].topic_name != CLUSTER_METADATA_TOPIC or each.partition_index != 0:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if kind is VoteRequest:
        return VoteRequest(
            candidate_id=each.replica_id,
            epoch=each.replica_epoch,
            last_epoch=each.last_offset_epoch,
            end_offset=each.last_offset,
            pre_vote=bool(each.pre_vote),
        )
    if kind is BeginQuorumEpochRequest:
        return BeginQuorumEpochRequest(leader_id=each.leader_id, epoch=each.leader_epoch)
    successors = (
        [candidate.candidate_id for candidate in each.preferred_candidates]
        if "preferred_candidates" in each.FIELDS
        else list(each.preferred_successors)
    )
    return EndQuorumEpochRequest(leader_id=each.leader_id, epoch=each.leader_epoch, successors=successors)


def refuse(error: ErrorCode) -> Body:
    """Return the answer to a request that concerns another cluster or no log of ours."""
    return {"error_code": int(error), "topics": [], "node_endpoints": []}


def encode_response(response: VoteResponse | EpochResponse) -> Body:
    partition: Body = {
        "partition_index": 0,
        "error_code": int(response.error),
        "leader_id": response.leader_id,
        "leader_epoch": response.epoch,
    }
    if isinstance(response, VoteResponse):
        partition["vote_granted"] = response.granted
    return {
        "error_code": 0,
        "topics": [{"topic_name": CLUSTER_METADATA_TOPIC, "partitions": [partition]}],
        "node_endpoints": [],
    }


# --- responses that come in


def decode_response(
    request: Request, sender: int, response: Message
) -> VoteResponse | EpochResponse | FetchResponse | None:
    """Decode the response to `request`; None if it has only an error for the whole request."""
    if response.error_code:
        return None
    topics = response.responses if isinstance(request, FetchRequest) else response.topics
    if not topics or not topics[0].partitions:
        return None
    each = topics[0].partitions[0]
    if isinstance(request, FetchRequest):
        return FetchResponse(answer=_fetch_answer(each), batches=each.records)
    if isinstance(request, VoteRequest):
        return VoteResponse(
            voter_id=sender,
            epoch=each.leader_epoch,
            leader_id=each.leader_id,
            granted=each.vote_granted,
            error=ErrorCode(each.error_code),
        )
    return EpochResponse(
        voter_id=sender, epoch=each.leader_epoch, leader_id=each.leader_id, error=ErrorCode(each.error_code)
    )


def _fetch_answer(partition: Any) -> FetchAnswer:
    leader = partition.current_leader
    diverging = partition.diverging_epoch
    return FetchAnswer(
        epoch=-1 if leader is None else leader.leader_epoch,
        leader_id=NO_LEADER if leader is None else leader.leader_id,
        high_watermark=partition.high_watermark,
        error=ErrorCode(partition.error_code),
        diverging=None if diverging is None or diverging.epoch < 0 else EpochEnd(diverging.epoch, diverging.end_offset),
    )
