"""Series of consumer groups and share groups. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.admin.facts.cluster_facts import ClusterFacts
from ottla.admin.facts.lag import GroupLag, PartitionLag
from ottla.browse.group_items import next_unread
from ottla.exporter.group_watch import GroupWatch
from ottla.exporter.offset_history import OffsetHistory
from ottla.exporter.prometheus_text import Series
from ottla.topics import TopicPartition


class LagSeconds(NamedTuple):
    """The age of a partition's first uncommitted record, in seconds."""

    seconds: float
    is_precise: bool


def group_series(facts: ClusterFacts) -> Iterator[Series]:
    """Yield type, state and members of each group."""
    for group in facts.groups:
        yield "ottla_cluster_group_info", (group.group_id, group.type, group.state), 1
        if group.members is not None:
            yield "ottla_cluster_group_members", (group.group_id,), len(group.members)


def lag_series(
    groups: Iterable[GroupLag], history: OffsetHistory, watch: GroupWatch, *, at_ms: int, by_partition: bool
) -> Iterator[Series]:
    """Yield lag and losses of each group by topic, with `by_partition` by partition too."""
    imprecise = 0
    for group in groups:
        by_topic: dict[str, list[PartitionLag]] = {}
        for each in group.partitions:
            if not each.is_gone:
                by_topic.setdefault(each.topic, []).append(each)
        for topic, partitions in by_topic.items():
            labels = group.group_id, topic
            seconds = 0.0
            stalled_ms = at_ms
            for each in partitions:
                found = lag_seconds(each, history, at_ms=at_ms)
                since_ms = watch.stalled_since_ms(group.group_id, each)
                if since_ms is not None:
                    stalled_ms = min(stalled_ms, since_ms)
                if found is not None:
                    seconds = max(seconds, found.seconds)
                    imprecise += not found.is_precise
                if by_partition and each.lag is not None:
                    place = *labels, str(each.partition)
                    yield "ottla_cluster_group_partition_lag_records", place, max(0, each.lag)
                    if found is not None:
                        yield "ottla_cluster_group_partition_lag_seconds", place, found.seconds
            known = [each.lag for each in partitions if each.lag is not None]
            if known:
                yield "ottla_cluster_group_lag_records", labels, sum(max(0, lag) for lag in known)
                yield "ottla_cluster_group_lag_seconds", labels, seconds
                yield "ottla_cluster_group_stalled_seconds", labels, (at_ms - stalled_ms) / 1000
            yield "ottla_cluster_group_unknown_lag_partitions", labels, len(partitions) - len(known)
            yield "ottla_cluster_group_beyond_end_partitions", labels, sum(lag < 0 for lag in known)
            yield "ottla_cluster_group_lost_records_total", labels, watch.lost(group.group_id, topic)
    yield "ottla_exporter_lag_seconds_at_least_partitions", (), imprecise


def lag_seconds(each: PartitionLag, history: OffsetHistory, *, at_ms: int) -> LagSeconds | None:
    """Return the age of the first record that is not committed: 0 without lag, None if it is not known."""
    if each.lag is None:
        return None
    if each.lag <= 0:
        return LagSeconds(0.0, is_precise=True)
    found = history.written_at(TopicPartition(each.topic, each.partition), next_unread(each))
    return None if found is None else LagSeconds(max(0, at_ms - found.at_ms) / 1000, found.is_precise)
