"""How far a log goes on without a record: markers of transactions, aborted records, and what compaction took away."""

from __future__ import annotations

from typing import Final

from ottla.topics import TopicPartition
from ottla.wire_client.cluster import Cluster
from ottla.wire_client.records import read_chunk

_MOST_CHUNKS: Final = 16
"""Of one partition and call: a long tail is passed in several calls."""


def next_record(cluster: Cluster, place: TopicPartition, start: int, end: int) -> int:
    """Return an offset of at most `end` before which there is no record from `start` on, as `isolation.level` shows
    them: that of the next record, or how far was looked. Raises what `read_chunk` does."""
    offset = start
    for _ in range(_MOST_CHUNKS):
        if offset >= end:
            break
        chunk = read_chunk(cluster, place, offset, most_plain_bytes=0)
        if chunk.records:
            return min(chunk.records[0].offset, end)
        if chunk.next_offset <= offset:
            break
        offset = chunk.next_offset
    return min(offset, end)
