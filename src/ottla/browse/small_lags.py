"""Small lags counted in records: offsets have gaps, and the marker of a transaction is no record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.admin import GroupLag, PartitionLag
    from ottla.wire_client.cluster.cluster_client import Cluster

_MOST_OFFSETS: Final = 100
"""More are left as they are: some gaps among them matter little, and reading them costs more."""
_MOST_PARTITIONS: Final = 100
_MOST_CHUNKS: Final = 8


def with_small_lags_counted(found: Sequence[GroupLag], open_cluster: Callable[..., Cluster]) -> list[GroupLag]:
    """Return the same lags, small ones counted in records, as a read_committed consumer sees them.

    A partition that cannot be read keeps its number of offsets.
    """
    small = sorted(
        (each for group in found for each in group.partitions if is_small_lag(each)), key=lambda each: each.lag or 0
    )[:_MOST_PARTITIONS]
    if not small:
        return list(found)
    counts: dict[tuple[str, int, int], int] = {}
    with open_cluster(max_partition_fetch_bytes=64 * 1024, fetch_max_bytes=64 * 1024) as cluster:
        for each in small:
            key = _key(each)
            if key not in counts:
                counts[key] = _count(cluster, each)
    return [
        replace(
            group,
            partitions=tuple(
                replace(each, lag=counts[_key(each)]) if is_small_lag(each) and _key(each) in counts else each
                for each in group.partitions
            ),
        )
        for group in found
    ]


def is_small_lag(each: PartitionLag) -> bool:
    """Return whether a lag is small enough that its records are counted."""
    is_known = each.lag is not None and each.held_at is None and not each.is_counted
    return is_known and 0 < (each.lag or 0) <= _MOST_OFFSETS


def _key(each: PartitionLag) -> tuple[str, int, int]:
    return each.topic, each.partition, max(each.committed or 0, each.log_start or 0)


def _count(cluster: Cluster, each: PartitionLag) -> int:
    """Return how many records lie from the first unread offset up to the end."""
    from ottla.errors import OttlaError
    from ottla.records import TopicPartition
    from ottla.wire_client.fetching.record_chunks import read_chunk

    topic, partition, offset = _key(each)
    end, lag = each.log_end or 0, each.lag or 0
    count = 0
    try:
        for _ in range(_MOST_CHUNKS):
            chunk = read_chunk(cluster, TopicPartition(topic, partition), offset)
            count += sum(record.offset < end for record in chunk.records)
            if chunk.next_offset >= end:
                return count
            if chunk.next_offset <= offset:
                return lag
            offset = chunk.next_offset
    except OttlaError:
        return lag  # it may not be read, or not now
    return min(lag, count + end - offset)
