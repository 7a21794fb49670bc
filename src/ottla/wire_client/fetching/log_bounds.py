"""Finds where logs begin and end, and how far one goes on without a record: behind markers, aborted records, gaps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.errors import UnknownTopic
from ottla.topics import TopicPartition
from ottla.wire_client.cluster.cluster_client import EARLIEST, LATEST, Cluster
from ottla.wire_client.fetching.record_chunks import read_chunk

_MAX_CHUNKS: Final = 16
"""Per partition and call: a long tail is passed in several calls."""


class LogBounds(NamedTuple):
    """One partition's log: the first offset, and the one behind the last that a reader may see."""

    topic_id: bytes | None
    start: int
    end: int


def log_bounds(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, missing: set[str] | None = None
) -> dict[TopicPartition, LogBounds]:
    """Return the partitions that exist, as a broker describes them now, and add topics that do not exist to `missing`.
    Raises what `Cluster` does."""
    wanted = list(partitions)
    cluster.refresh({name.topic for name in wanted})
    ids: dict[str, bytes | None] = {}
    for topic in {name.topic for name in wanted}:
        try:
            ids[topic] = cluster.topic(topic).topic_id
        except UnknownTopic:
            if missing is not None:
                missing.add(topic)
    there = [name for name in wanted if name.topic in ids and cluster.leader(name) >= 0]
    starts = cluster.list_offsets(dict.fromkeys(there, EARLIEST))
    ends = cluster.list_offsets(dict.fromkeys(there, LATEST))
    return {name: LogBounds(ids[name.topic], starts[name][0], ends[name][0]) for name in there}


def next_record(cluster: Cluster, place: TopicPartition, start: int, end: int) -> int:
    """Return an offset of at most `end` before which there is no record from `start` on, as `isolation.level` shows
    them: that of the next record, or how far was looked. Raises what `read_chunk` does."""
    offset = start
    for _ in range(_MAX_CHUNKS):
        if offset >= end:
            break
        chunk = read_chunk(cluster, place, offset, most_plain_bytes=0)
        if chunk.records:
            return min(chunk.records[0].offset, end)
        if chunk.next_offset <= offset:
            break
        offset = chunk.next_offset
    return min(offset, end)
