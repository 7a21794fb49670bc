"""Reads for `ottla dlq`: topics with dead letters, and one dead letter at its offset, without a scan."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

from ottla.browse.reading import read_blocks
from ottla.browse.record_times import time_text
from ottla.errors import InputError
from ottla.records import TopicPartition
from ottla.wire_client.cluster.cluster_client import EARLIEST, LATEST, Cluster
from ottla_wire.records import Row

SMALL_FETCHES: Final = {"fetch_max_bytes": 2 * 1024 * 1024, "max_partition_fetch_bytes": 256 * 1024}
"""Dead letters compress well: a megabyte of a fetch may be a hundred of them in memory."""

_NEWEST_TIMESTAMP = -3
"""In ListOffsets: the record with the largest timestamp (KIP-734)."""


def topic_items(cluster: Cluster, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the items of `dlq.topics/1`, of topics by their names."""
    items = []
    if names:
        cluster.refresh(names)
        for name in names:
            places = [TopicPartition(name, number) for number in cluster.topic(name).leaders]
            starts, ends, newest = (
                cluster.list_offsets(dict.fromkeys(places, wanted)) for wanted in (EARLIEST, LATEST, _NEWEST_TIMESTAMP)
            )
            letters = sum(ends[place][0] - starts[place][0] for place in places)
            latest_ms = max((at for offset, at in newest.values() if offset >= 0), default=-1)
            items.append(
                {"topic": name, "partitions": len(places), "letters": letters, "newest": time_text(latest_ms) or None}
            )
    return items


def record_at(cluster: Cluster, topic: str, partition: int, offset: int) -> Row | None:
    """Return the record at one offset, or None. Reads the one batch that has it."""
    place = TopicPartition(topic, partition)
    if partition not in cluster.topic(topic).leaders:
        return None
    start, end = (cluster.list_offsets({place: wanted})[place][0] for wanted in (EARLIEST, LATEST))
    if not start <= offset < end:
        return None
    with closing(read_blocks(cluster, {place: (offset, offset + 1)})) as blocks:
        return next((row for block in blocks if block is not None for row in block.rows), None)


def existing_record(cluster: Cluster, topic: str, partition: int, offset: int) -> Row:
    """Return the record at one offset, as `record_at`. InputError if there is none."""
    found = record_at(cluster, topic, partition, offset)
    if found is None:
        raise InputError(f"{topic}: there is no record at partition {partition}, offset {offset}")
    return found
