"""The member's requests to its client, and conversions of partitions and offsets. On the poll thread only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from ottla.errors import BrokerUnavailable
from ottla.records import TopicPartition
from ottla.sync.client.reachable import metadata_of
from ottla.telemetry import log_event

_ANSWER_S: Final = 5.0


def check_reachable(client: Any, servers: str, timeout_s: float, *, topic: str) -> None:
    """Raise `BrokerUnavailable` if no broker answers a consumer's request about a topic."""
    try:
        metadata_of(client, timeout_s, topic)
    except KafkaException as error:
        raise BrokerUnavailable(
            f"no Kafka broker answered at {servers} within {timeout_s:g} s ({error.args[0].str()}); "
            "check bootstrap.servers and that the broker runs"
        ) from error


def offset_at_time(client: Any, topic_partition: TopicPartition, timestamp_ms: int, timeout_s: float) -> int:
    """Return the first offset at or after `timestamp_ms`, or the end."""
    asked = ClientPartition(topic_partition.topic, topic_partition.partition, timestamp_ms)
    offset: int = client.offsets_for_times([asked], timeout=timeout_s)[0].offset
    if offset < 0:
        offset = client.get_watermark_offsets(asked, timeout=timeout_s)[1]
    return offset


def committed_offsets(
    client: Any, partitions: list[ClientPartition], *, group: str
) -> dict[TopicPartition, tuple[int, str]] | None:
    """Return the committed offsets, each with its metadata; None if they cannot be read."""
    try:
        committed = client.committed(partitions, timeout=_ANSWER_S)
    except (KafkaException, UnicodeDecodeError) as error:
        # Without it the finished ones beyond the position are delivered again: at least once still holds. What is not
        # text: another client's metadata without a zero byte at its end, behind which confluent-kafka reads on.
        log_event("commit_metadata_unread", "warning", {"group": group, "error": str(error)})
        return None
    if any(p.error is not None for p in committed):
        return None
    return {TopicPartition(p.topic, p.partition): (p.offset, p.metadata or "") for p in committed if p.offset >= 0}


def log_ends_of(
    client: Any, asked: Sequence[TopicPartition], *, on_error: Callable[[Exception], None]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return where the logs of partitions start and end for this client, of those that a leader answers for."""
    found: list[dict[TopicPartition, int]] = []
    for place in (OFFSET_BEGINNING, OFFSET_END):
        try:
            answers = client.offsets_for_times(
                [ClientPartition(name.topic, name.partition, place) for name in asked], timeout=_ANSWER_S
            )
        except KafkaException as error:
            on_error(error)
            return {}
        found.append(
            {TopicPartition(p.topic, p.partition): p.offset for p in answers if p.error is None and p.offset >= 0}
        )
    starts, ends = found
    return {name: (starts[name], ends[name]) for name in asked if name in starts and name in ends}


def retry_positions(
    client: Any, asked: Sequence[TopicPartition], *, on_error: Callable[[Exception], None]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return where partitions of retry topics begin to be read, and where they end; those that could be looked up."""
    positions: dict[TopicPartition, tuple[int, int]] = {}
    try:
        for found in client.committed(client_partitions(asked), timeout=_ANSWER_S):
            low, end = client.get_watermark_offsets(found, timeout=_ANSWER_S)
            start = low if found.offset < 0 else found.offset
            positions[TopicPartition(found.topic, found.partition)] = (start, end)
    except (KafkaException, UnicodeDecodeError) as error:
        on_error(error)
    return positions


def client_partitions(partitions: Sequence[TopicPartition]) -> list[ClientPartition]:
    return [ClientPartition(name.topic, name.partition) for name in partitions]


def client_offsets(offsets: Mapping[TopicPartition, tuple[int, str]]) -> list[ClientPartition]:
    return [
        ClientPartition(name.topic, name.partition, offset, metadata)
        if metadata
        else ClientPartition(name.topic, name.partition, offset)
        for name, (offset, metadata) in offsets.items()
    ]
