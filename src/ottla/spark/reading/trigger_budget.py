"""What one trigger reads of each partition, by `maxOffsetsPerTrigger` and `maxBytesPerTrigger`.

Kafka reports how many offsets a partition has, and not how many bytes they take. So the batches that come next are
fetched in some partitions of each topic, and their size by offset is taken for all of the topic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from typing import Final

from ottla.records import TopicPartition
from ottla.spark.options import SourceOptions
from ottla.spark.planner import share_budget, share_bytes
from ottla.wire_client import Cluster, OffsetRange, OnDataLoss
from ottla.wire_client.fetching.range_reading import batches_of_ranges

_SAMPLED: Final = 4
"""Partitions of a topic that are looked into: those with most to read. One Fetch for each, of a megabyte at most."""
_LOOKED_AT: Final = 10_000
"""Offsets in which a batch is looked for: behind them may be millions that were aborted or compacted away."""
_UNKNOWN_BYTES: Final = 1_000.0
"""The size of a record of a topic of which nothing came: only control records, or lost ones."""


def grant(
    cluster: Cluster,
    options: SourceOptions,
    begins: Mapping[TopicPartition, int],
    available: Mapping[TopicPartition, int],
    *,
    budget: int | None,
    turn: int = 0,
) -> dict[TopicPartition, int]:
    """Return how many offsets each partition may read from its beginning on. `budget` is in offsets; None is none."""
    granted = dict(available)
    if budget is not None:
        granted = share_budget(granted, budget=budget, fairness=options.fairness, turn=turn)
    if options.max_bytes_per_trigger is not None and any(granted.values()):
        granted = share_bytes(
            granted,
            budget_bytes=options.max_bytes_per_trigger,
            bytes_per_offset=bytes_per_offset(cluster, begins, granted),
            fairness=options.fairness,
            turn=turn,
        )
    return granted


def bytes_per_offset(
    cluster: Cluster, begins: Mapping[TopicPartition, int], wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, float]:
    """Return what an offset of each partition takes, as its topic's next batches say."""
    by_topic: dict[str, list[TopicPartition]] = defaultdict(list)
    for partition in sorted(wanted, key=lambda p: -wanted[p]):
        if wanted[partition] and len(by_topic[partition.topic]) < _SAMPLED:
            by_topic[partition.topic].append(partition)
    sizes = {topic: _sampled(cluster, begins, wanted, sample) for topic, sample in by_topic.items()}
    return {p: sizes.get(p.topic, _UNKNOWN_BYTES) for p in wanted}


def _sampled(
    cluster: Cluster,
    begins: Mapping[TopicPartition, int],
    wanted: Mapping[TopicPartition, int],
    sample: list[TopicPartition],
) -> float:
    total_bytes = offsets = 0
    for p in sample:
        end = begins[p] + min(wanted[p], _LOOKED_AT)
        asked = OffsetRange(topic=p.topic, partition=p.partition, start=begins[p], end=end)
        # Lost records are reported by the read itself.
        with closing(batches_of_ranges(cluster, [asked], on_data_loss=OnDataLoss.LATEST)) as reading:
            found = next((each for each in reading if len(each)), None)
        for header in found.headers if found is not None else ():
            total_bytes += header.size_in_bytes
            offsets += header.last_offset_delta + 1
    return max(1.0, total_bytes / offsets) if offsets else _UNKNOWN_BYTES
