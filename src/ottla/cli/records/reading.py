"""Reading spans of a topic over the wire client, a block of records at a time: bounded memory, no group, no commits."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing

from ottla.records import TopicPartition
from ottla.wire_client.cluster import Cluster
from ottla.wire_client.range_reading import batches_of_ranges
from ottla.wire_client.ranges import OffsetRange, OnDataLoss
from ottla.wire_client.rows import Rows, rows_of


def read_blocks(
    cluster: Cluster, spans: Mapping[TopicPartition, tuple[int, int]], *, follow: bool = False
) -> Generator[Rows | None, None, None]:
    """All records of the spans (first offset wanted, first one not wanted), those of a partition in order.

    `follow`: go on at the end, for ever; None then stands behind each response, also where nothing came.
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


def size_of(spans: Mapping[TopicPartition, tuple[int, int]]) -> int:
    """How many records the spans have at most: offsets may have gaps."""
    return sum(stop - first for first, stop in spans.values())
