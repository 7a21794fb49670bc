"""ListOffsets (key 2), versions 1-11.

Earliest (-2), latest (-1), the record with the largest timestamp (-3), earliest local (-4, same as earliest) and by
time. With read_committed "latest" is the last stable offset. A new leader that does not know its predecessor's high
watermark yet returns an error (KIP-207), because its own could seem to move back. Followers get offsets up to the log
end. Negative numbers that mean nothing, or not yet in this version, and a partition that is named twice are refused,
each on its own. Not done: tiered storage (-5 and -6 answer offset -1).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.replication.partition import Isolation, Partition
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasReplicas

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""Numbers that are no times, and the version that each came with."""

_NEVER = 2**15
CONSUMER = -1
OFFSET_NOT_AVAILABLE_FROM = 5


def handle(ctx: RequestContext[HasReplicas], request: Message) -> Response:
    counts = Counter((topic.name, wanted.partition_index) for topic in request.topics for wanted in topic.partitions)
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _partition(ctx, request, topic.name, wanted, is_repeated=counts[topic.name, index] > 1)
                    for index, wanted in {each.partition_index: each for each in topic.partitions}.items()
                ],
            }
            for topic in request.topics
        ]
    }


def _partition(
    ctx: RequestContext[HasReplicas], request: Message, topic: str, wanted: Message, *, is_repeated: bool
) -> Body:
    index = wanted.partition_index
    try:
        if is_repeated:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "the partition is named twice in one request")
        if wanted.timestamp < 0 and ctx.api_version < _SINCE.get(wanted.timestamp, _NEVER):
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
        return {"partition_index": index, "error_code": 0, **_look_up(ctx, request, topic, wanted)}
    except BrokerError as error:
        return {"partition_index": index, "error_code": int(error.code), "timestamp": -1, "offset": -1}


def _look_up(ctx: RequestContext[HasReplicas], request: Message, topic: str, wanted: Message) -> Body:
    partition = ctx.services.replicas.leader_partition(TopicPartition(topic, wanted.partition_index))
    partition.check_leader_epoch(wanted.current_leader_epoch)
    timestamp = wanted.timestamp
    if request.replica_id != CONSUMER:
        isolation = Isolation.LOG_END
    elif request.isolation_level == 1:
        isolation = Isolation.READ_COMMITTED
    else:
        isolation = Isolation.HIGH_WATERMARK
    limit = partition.read_limit(isolation)
    if timestamp == LATEST:
        _refuse_during_election(ctx, partition, isolation)
        return {"offset": limit, "leader_epoch": partition.leader_epoch}
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = partition.log_start_offset
        return {"offset": start, "leader_epoch": partition.epoch_at(start)}
    if timestamp == MAX_TIMESTAMP:
        found = partition.log.offset_of_max_timestamp()
    elif timestamp < 0:
        return {"offset": -1}
    else:
        found = partition.log.offset_for_timestamp(timestamp)
    if found is None or found.offset >= limit:
        if found is not None:
            _refuse_during_election(ctx, partition, isolation)
        return {"timestamp": -1, "offset": -1, "leader_epoch": -1}
    return {"timestamp": found.timestamp_ms, "offset": found.offset, "leader_epoch": found.leader_epoch}


def _refuse_during_election(ctx: RequestContext[HasReplicas], partition: Partition, isolation: Isolation) -> None:
    if isolation is not Isolation.LOG_END and partition.has_unfinished_election:
        has_code = ctx.api_version >= OFFSET_NOT_AVAILABLE_FROM
        raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE if has_code else ErrorCode.LEADER_NOT_AVAILABLE)
