"""OffsetForLeaderEpoch (key 23), versions 2-4: where a leader epoch ended, so that a reader notices a truncated log.

Kafka also lists the obsolete versions 0 and 1; librdkafka supports 2 only, and gives up its truncation check if 2 is
not listed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasReplicas


def handle(ctx: RequestContext[HasReplicas], request: Message) -> Response:
    return {
        "topics": [
            {"topic": topic.topic, "partitions": [_partition(ctx, topic.topic, each) for each in topic.partitions]}
            for topic in request.topics
        ]
    }


def _partition(ctx: RequestContext[HasReplicas], topic: str, wanted: Message) -> Body:
    try:
        partition = ctx.services.replicas.leader_partition(TopicPartition(topic, wanted.partition))
        partition.check_leader_epoch(wanted.current_leader_epoch)
    except BrokerError as error:
        return {"partition": wanted.partition, "error_code": int(error.code)}
    # The current epoch has not ended: its end so far is the end of the log.
    if wanted.leader_epoch == partition.leader_epoch:
        return {
            "partition": wanted.partition,
            "error_code": 0,
            "leader_epoch": partition.leader_epoch,
            "end_offset": partition.log.log_end_offset,
        }
    end = partition.log.leader_epoch_end_offset(wanted.leader_epoch)
    return {
        "partition": wanted.partition,
        "error_code": 0,
        "leader_epoch": end.leader_epoch,
        "end_offset": end.end_offset,
    }
