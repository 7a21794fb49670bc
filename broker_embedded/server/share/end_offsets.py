"""End offsets of partitions, from their leaders, here or on other brokers: what the lag of a share group counts to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.server.requests.context import RequestContext
from ottla_wire.protocol import ApiKey
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.share.offset_needs import OffsetNeeds

UNKNOWN = -1
_LATEST = -1
_VERSION = 7
CHANNEL = "share-lag"


def end_offsets(
    ctx: RequestContext[OffsetNeeds],
    partitions: Iterable[TopicPartition],
    on_done: Callable[[dict[TopicPartition, int]], None],
) -> None:
    """Report the end offset of each partition; -1 where no leader answers."""
    image = ctx.services.metadata.image
    found: dict[TopicPartition, int] = {}
    elsewhere: dict[int, list[TopicPartition]] = {}
    for each in partitions:
        found[each] = UNKNOWN
        state = image.partition(each)
        if state is None or not state.has_leader:
            continue
        if state.leader != ctx.services.node_id:
            elsewhere.setdefault(state.leader, []).append(each)
            continue
        try:
            found[each] = ctx.services.replicas.leader_partition(each).high_watermark
        except BrokerError:
            continue
    if not elsewhere:
        on_done(found)
        return
    open_requests = len(elsewhere)

    def answered(future: asyncio.Future[Message]) -> None:
        nonlocal open_requests
        open_requests -= 1
        if not future.cancelled() and future.exception() is None:
            for topic in future.result().topics:
                for each in topic.partitions:
                    if not each.error_code:
                        found[TopicPartition(topic.name, each.partition_index)] = each.offset
        if open_requests == 0:
            on_done(found)

    for leader, wanted in elsewhere.items():
        body = {"replica_id": -1, "isolation_level": 0, "topics": _topics(wanted)}
        ctx.services.peers.send(leader, ApiKey.LIST_OFFSETS, _VERSION, body, channel=CHANNEL).add_done_callback(
            answered
        )


def _topics(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    numbers: dict[str, list[dict[str, int]]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append({"partition_index": number, "timestamp": _LATEST})
    return [{"name": name, "partitions": each} for name, each in numbers.items()]
