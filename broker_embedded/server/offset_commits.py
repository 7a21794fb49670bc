"""What OffsetCommit and TxnOffsetCommit ask for, partition by partition: what may be committed, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.coordinator.group.offsets.committed import OffsetKey
from broker_embedded.coordinator.group.requests import PartitionCommit
from broker_embedded.server.registry import RequestContext
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

Refusals = dict[OffsetKey, ErrorCode]


def sort_out(
    ctx: RequestContext, api_key: ApiKey, request: Message, topics: Iterable[tuple[str, Sequence[Message]]]
) -> tuple[tuple[PartitionCommit, ...], Refusals]:
    """`topics`: each by its name, with the partitions that the request has for it."""
    commits: list[PartitionCommit] = []
    refused: Refusals = {}
    for name, partitions in topics:
        for asked in partitions:
            key = OffsetKey(name, asked.partition_index)
            error = _refusal(ctx, api_key, request, key)
            if error is not None:
                refused[key] = error
            else:
                commits.append(
                    PartitionCommit(
                        key=key,
                        offset=asked.committed_offset,
                        leader_epoch=asked.committed_leader_epoch,
                        metadata=asked.committed_metadata or "",
                    )
                )
    return tuple(commits), refused


def _refusal(ctx: RequestContext, api_key: ApiKey, request: Message, key: OffsetKey) -> ErrorCode | None:
    broker = ctx.broker
    if broker.metadata.image.partition(TopicPartition(*key)) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker.faults.is_armed:
        try:
            broker.faults.check_partition(api_key, ctx.client_id, request, *key)
        except BrokerError as error:
            return error.code
    return None
