"""DescribeQuorum (key 55), versions 0-2: leader, epoch, high watermark and the progress of each voter and observer.

Answered by the leader of the metadata quorum, whichever node is asked. Directory ids are zero: the voters are static
(AddRaftVoter and RemoveRaftVoter are refused).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from broker_embedded.common.types import CLUSTER_METADATA_TOPIC
from broker_embedded.controller.quorum import QuorumReplica, QuorumView
from broker_embedded.server.handling.endpoints import endpoints_of
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasMetadata, HasQuorum

    class Needs(HasQuorum, HasMetadata, Protocol): ...


LISTENER = "PLAINTEXT"


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    view: QuorumView | None = None
    topics: list[Body] = []
    for topic in request.topics:
        partitions: list[Body] = []
        for each in topic.partitions:
            if topic.topic_name == CLUSTER_METADATA_TOPIC and each.partition_index == 0:
                view = view or ctx.services.quorum.describe()
                partitions.append(_partition(view))
            else:
                partitions.append(_unknown(each.partition_index))
        topics.append({"topic_name": topic.topic_name, "partitions": partitions})
    return {"error_code": 0, "error_message": None, "topics": topics, "nodes": _nodes(ctx, view)}


def _partition(view: QuorumView) -> Body:
    return {
        "partition_index": 0,
        "error_code": 0,
        "error_message": None,
        "leader_id": view.leader_id,
        "leader_epoch": view.epoch,
        "high_watermark": view.high_watermark,
        "current_voters": [_replica(each) for each in view.voters],
        "observers": [_replica(each) for each in view.observers],
    }


def _unknown(partition: int) -> Body:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {
        "partition_index": partition,
        "error_code": int(error),
        "error_message": f"only {CLUSTER_METADATA_TOPIC}-0 has a quorum",
        "leader_id": -1,
        "leader_epoch": -1,
        "high_watermark": -1,
        "current_voters": [],
        "observers": [],
    }


def _replica(replica: QuorumReplica) -> dict[str, Any]:
    return {
        "replica_id": replica.replica_id,
        "replica_directory_id": bytes(16),
        "log_end_offset": replica.log_end_offset,
        "last_fetch_timestamp": replica.last_fetch_ms,
        "last_caught_up_timestamp": replica.last_caught_up_ms,
    }


def _nodes(ctx: RequestContext[Needs], view: QuorumView | None) -> list[Body]:
    """Return the voters' endpoints: a node has one listener for everything."""
    if view is None:
        return []
    return [
        {
            "node_id": node["node_id"],
            "listeners": [{"name": LISTENER, "host": node["host"], "port": node["port"]}],
        }
        for node in endpoints_of(ctx.services.metadata.image, [each.replica_id for each in view.voters])
    ]
