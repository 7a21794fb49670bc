"""Samples a topic that is followed, if it is faster than a person can read. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.browse.reading import size_of
from ottla.records import TopicPartition


def sample(
    positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], most: int, *, turn: int
) -> tuple[dict[TopicPartition, tuple[int, int]], int]:
    """Return what a round reads, at most `most` records, and how many it skips.

    Partitions that grew by less than their share are read whole. Of those that grew by more one is read, another each
    turn: a broker answers with whole batches, and a hundred bytes of each partition cost a megabyte of each. The first
    of the new records are read: a batch begins there, so that nothing has to be decoded to get to them.
    """
    grown = {place: end - positions[place] for place, end in ends.items() if end > positions[place]}
    spans: dict[TopicPartition, tuple[int, int]] = {}
    waiting = sorted(grown, key=lambda place: (grown[place], place))
    left = most
    while waiting and 0 < grown[waiting[0]] <= left // len(waiting):
        place = waiting.pop(0)
        spans[place] = (positions[place], ends[place])
        left -= grown[place]
    waiting.sort()
    for at in range(len(waiting)):
        if left <= 0:
            break
        place = waiting[(turn + at) % len(waiting)]
        size = min(left, grown[place])
        spans[place] = (positions[place], positions[place] + size)
        left -= size
    return spans, sum(grown.values()) - size_of(spans)
