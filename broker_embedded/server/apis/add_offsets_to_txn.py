"""AddOffsetsToTxn (key 25), versions 0 to 4: the offsets of a group become part of a producer's transaction.

That is: the partition of `__consumer_offsets` that keeps the group gets a marker at the end, like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.promises import Promise
from broker_embedded.common.types import GROUP_METADATA_TOPIC, TopicPartition
from broker_embedded.coordinator.runtime.partitioner import partition_for
from broker_embedded.coordinator.runtime.reply import Reply
from broker_embedded.coordinator.transaction.requests import AddPartitions, PartitionsChecked
from broker_embedded.coordinator.transaction.transaction import ProducerIdentity
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasConfig, HasMetadata, HasTopics, HasTransactions

    class Needs(HasConfig, HasMetadata, HasTransactions, HasTopics, Protocol): ...


FIRST_WITH_PRODUCER_FENCED = 2


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    version = ctx.api_version
    shard = ctx.services.transactions.shard_of(request.transactional_id)
    reply: Reply[PartitionsChecked] = Reply(lambda answer: _body(answer.error, version))
    promise: Promise[Body] = Promise()
    reply.listen(lambda body: promise.set_result(body) if not promise.done() else None)

    def add(ready: Promise[None]) -> None:
        error = ready.exception()
        if error is not None:
            reply.settle(PartitionsChecked(error=ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        partition = TopicPartition(GROUP_METADATA_TOPIC, _partition_of(ctx, request.group_id))
        shard.add_partitions(
            AddPartitions(
                transactional_id=request.transactional_id,
                producer=ProducerIdentity(request.producer_id, request.producer_epoch),
                partitions=frozenset({partition}),
            ),
            reply,
        )

    ctx.services.topics.ensure_internal(GROUP_METADATA_TOPIC).add_done_callback(add)
    return promise


def _body(error: ErrorCode, version: int) -> Body:
    if error is ErrorCode.PRODUCER_FENCED and version < FIRST_WITH_PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return {"throttle_time_ms": 0, "error_code": int(error)}


def _partition_of(ctx: RequestContext[Needs], group_id: str) -> int:
    """Return the partition of __consumer_offsets that keeps a group, also before the topic exists."""
    topic = ctx.services.metadata.image.topic(GROUP_METADATA_TOPIC)
    count = len(topic.partitions) if topic is not None else ctx.services.config.offsets_topic_num_partitions
    return partition_for(group_id, count)
