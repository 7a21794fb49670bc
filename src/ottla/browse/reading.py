"""Reading spans of a topic over the wire client, a block of records at a time: bounded memory, no group, no commits."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from typing import Final

from ottla.errors import OttlaError
from ottla.records import TopicPartition
from ottla.wire_client.cluster.cluster_client import Cluster
from ottla.wire_client.fetching.range_reading import batches_of_ranges
from ottla.wire_client.fetching.record_rows import RecordRows, rows_of
from ottla.wire_client.ranges import OffsetRange, OnDataLoss

_LOOK_EVERY_S: Final = 5.0
"""How often a topic that is followed is looked at for more partitions."""


def read_blocks(
    cluster: Cluster, spans: Mapping[TopicPartition, tuple[int, int]], *, follow: bool = False
) -> Generator[RecordRows | None, None, None]:
    """Yield all records of the spans (first offset, end offset), in order within a partition.

    `follow`: continue at the end for ever, and yield None after each response, including an empty one.
    """
    ranges = [
        OffsetRange(
            topic=place.topic,
            partition=place.partition,
            start=first,
            end=stop,
            topic_id=cluster.topic(place.topic).topic_id,
        )
        for place, (first, stop) in spans.items()
    ]
    limits = cluster.settings.decode_limits
    with closing(batches_of_ranges(cluster, ranges, on_data_loss=OnDataLoss.EARLIEST, waits_at_end=follow)) as reading:
        for found in reading:
            yield from rows_of(found, limits)
            if follow:
                yield None


def follow_growing(
    cluster: Cluster, topic: str, spans: Mapping[TopicPartition, tuple[int, int]], *, end: int
) -> Generator[RecordRows | None, None, None]:
    """Return `read_blocks` with `follow`, including partitions that are added to the topic, from their start."""
    now = dict(spans)
    while True:
        look_at = cluster.now() + _LOOK_EVERY_S
        with closing(read_blocks(cluster, now, follow=True)) as blocks:
            for block in blocks:
                if block is not None and block.rows:
                    now[TopicPartition(block.topic, block.partition)] = (block.rows[-1][0] + 1, end)
                yield block
                if block is not None or cluster.now() < look_at:
                    continue
                look_at = cluster.now() + _LOOK_EVERY_S
                new = [place for place in _places(cluster, topic) if place not in now]
                if new:
                    now |= dict.fromkeys(new, (0, end))
                    break


def _places(cluster: Cluster, topic: str) -> Iterator[TopicPartition]:
    """Yield the partitions there are now; none if no broker answers: reading continues, or raises the error itself."""
    try:
        cluster.refresh([topic])
        leaders = cluster.topic(topic).leaders
    except OttlaError:
        return
    for number, leader in leaders.items():
        if leader >= 0:
            yield TopicPartition(topic, number)


def size_of(spans: Mapping[TopicPartition, tuple[int, int]]) -> int:
    """Return how many records the spans have at most: offsets may have gaps."""
    return sum(stop - first for first, stop in spans.values())
