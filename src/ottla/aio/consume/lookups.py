"""The member's requests to its client, and conversions of partitions and offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from aiokafka import TopicPartition as ClientPartition
from aiokafka.consumer.fetcher import OffsetResetStrategy
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from ottla.aio.aiokafka_internals import coordinator_of, subscription_of
from ottla.aio.client.client_errors import error_of
from ottla.aio.client.reachable import start_client
from ottla.config import Principal
from ottla.consumer.commit.offset_metadata import terminated
from ottla.errors import BrokerUnavailable
from ottla.records import TopicPartition
from ottla.telemetry import log_event

_ANSWER_S: Final = 5.0


async def connect(client: Any, servers: str, timeout_s: float, asking: Principal) -> None:
    """Start the client, or raise `BrokerUnavailable` if no broker responds."""
    try:
        async with asyncio.timeout(timeout_s):
            await start_client(client)
    except (KafkaError, TimeoutError, OSError) as error:
        if isinstance(error, KafkaError):
            known = error_of(error, servers, asking=asking)
            if not isinstance(known, BrokerUnavailable):
                raise known from error
        raise BrokerUnavailable(
            f"no Kafka broker answered at {servers} within {timeout_s:g} s ({str(error) or 'no answer'}); "
            "check bootstrap.servers and that the broker runs"
        ) from error


async def offset_at_time(client: Any, topic_partition: TopicPartition, timestamp_ms: int) -> int:
    """Return the first offset at or after `timestamp_ms`, or the end."""
    asked = ClientPartition(*topic_partition)
    found = (await client.offsets_for_times({asked: timestamp_ms}))[asked]
    offset: int = found.offset if found is not None else (await client.end_offsets([asked]))[asked]
    return offset


async def committed_offsets(
    client: Any, partitions: Sequence[TopicPartition], *, group: str
) -> dict[TopicPartition, tuple[int, str]] | None:
    """Return the committed offsets, each with its metadata; None if they cannot be read."""
    # aiokafka's public `committed` leaves the metadata out; without it the finished ones are delivered again.
    coordinator = coordinator_of(client)
    if coordinator is None or not hasattr(coordinator, "fetch_committed_offsets"):
        return None
    try:
        async with asyncio.timeout(_ANSWER_S):
            committed = await coordinator.fetch_committed_offsets(client_partitions(partitions))
    except (KafkaError, TimeoutError) as error:
        log_event("commit_metadata_unread", "warning", {"group": group, "error": str(error)})
        return None
    return {
        TopicPartition(*name): (found.offset, found.metadata or "")
        for name, found in committed.items()
        if found.offset >= 0
    }


async def log_ends_of(
    client: Any, asked: Sequence[TopicPartition], *, on_error: Callable[[Exception], None]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the log bounds of partitions for this client; empty without a timely response."""
    names = client_partitions(asked)
    try:
        async with asyncio.timeout(_ANSWER_S):
            lows, ends = await client.beginning_offsets(names), await client.end_offsets(names)
    except (KafkaError, TimeoutError) as error:
        on_error(error)
        return {}
    return {TopicPartition(*name): (lows[name], ends[name]) for name in names}


def begin_at_start(client: Any, partition: TopicPartition) -> None:
    """Let the client look up the start of a partition and begin there, once the partition has a leader."""
    state = subscription_of(client).subscription.assignment.state_value(ClientPartition(*partition))
    state.await_reset(OffsetResetStrategy.EARLIEST)


async def retry_positions(
    client: Any, asked: Sequence[TopicPartition], *, on_error: Callable[[Exception], None]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return where partitions of retry topics begin to be read, and where they end; those that could be looked up."""
    positions: dict[TopicPartition, tuple[int, int]] = {}
    names = client_partitions(asked)
    try:
        async with asyncio.timeout(_ANSWER_S):
            lows = await client.beginning_offsets(names)
            ends = await client.end_offsets(names)
            for name in names:
                committed = await client.committed(name)
                positions[TopicPartition(*name)] = (lows[name] if committed is None else committed, ends[name])
    except (KafkaError, TimeoutError) as error:
        on_error(error)
    return positions


def client_partitions(partitions: Sequence[TopicPartition]) -> list[ClientPartition]:
    return [ClientPartition(*name) for name in partitions]


def client_offsets(offsets: Mapping[TopicPartition, tuple[int, str]]) -> dict[ClientPartition, OffsetAndMetadata]:
    return {
        ClientPartition(*name): OffsetAndMetadata(offset, terminated(metadata))
        for name, (offset, metadata) in offsets.items()
    }
