"""From what was subscribed to partitions, and from positions to offsets."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ottla.errors import ConfigError
from ottla.records import TopicPartition
from ottla.spark.checkpoints.offsets import Offsets
from ottla.spark.options import SourceOptions, Start
from ottla.wire_client import EARLIEST, LATEST, Cluster, OffsetOutOfRange, OffsetRange, OnDataLoss, group_offsets

log = logging.getLogger(__name__)


def subscribed_partitions(cluster: Cluster, options: SourceOptions) -> list[TopicPartition]:
    """Return the partitions that exist now of what was subscribed to. Topics and partitions may be added at any
    time."""
    if options.assigned:
        topics = sorted({p.topic for p in options.assigned})
        _refresh(cluster, topics)
        existing = {TopicPartition(t, n) for t in topics for n in cluster.topic(t).leaders}
        missing = [str(p) for p in options.assigned if p not in existing]
        if missing:
            raise ConfigError(f"assign: no such partition: {', '.join(missing)}")
        return list(options.assigned)
    if options.pattern is not None:
        pattern = options.pattern
        topics = cluster.until(lambda: cluster.topics_matching(pattern), what="names of topics")
    else:
        topics = list(options.topics)
        _refresh(cluster, topics)
    return [TopicPartition(t, n) for t in topics for n in sorted(cluster.topic(t).leaders)]


def _refresh(cluster: Cluster, topics: list[str]) -> None:
    """Ask for metadata now, once more when the broker that was asked is gone."""
    cluster.until(lambda: cluster.refresh(topics), what="metadata")


def offsets_at(cluster: Cluster, partitions: Iterable[TopicPartition], special: int) -> Offsets:
    """Return EARLIEST or LATEST of each partition."""
    return {p: offset for p, (offset, _) in cluster.list_offsets(dict.fromkeys(partitions, special)).items()}


def resolve_start(cluster: Cluster, options: SourceOptions, partitions: list[TopicPartition]) -> Offsets:
    """Return the first offset to read of each partition."""
    return _resolve(cluster, options.start, partitions, name="starting", if_too_late=options.is_latest_if_too_late)


def resolve_end(cluster: Cluster, options: SourceOptions, partitions: list[TopicPartition]) -> Offsets:
    """Return the first offset not to read of each partition."""
    return _resolve(cluster, options.end, partitions, name="ending", if_too_late=True)


def batch_ranges(cluster: Cluster, options: SourceOptions) -> list[OffsetRange]:
    """Return the ranges of a batch read; the policy decides about deleted records."""
    partitions = subscribed_partitions(cluster, options)
    starts = resolve_start(cluster, options, partitions)
    ends = resolve_end(cluster, options, partitions)
    earliest = offsets_at(cluster, partitions, EARLIEST)
    latest = offsets_at(cluster, partitions, LATEST)
    ranges: list[OffsetRange] = []
    for p in partitions:
        start, end = starts[p], ends[p]
        if start < earliest[p] or end > latest[p]:
            policy = options.on_data_loss.of(p)
            if policy is OnDataLoss.FAIL:
                wanted = start if start < earliest[p] else end
                raise OffsetOutOfRange(
                    topic=p.topic, partition=p.partition, wanted=wanted, earliest=earliest[p], latest=latest[p]
                )
            start, end = max(start, earliest[p]), min(end, latest[p])
            if policy is OnDataLoss.LATEST:
                start = end
            log.warning(
                "%s: offsets %d to %d were asked for, and the partition holds %d to %d; %d records are read",
                p, starts[p], ends[p], earliest[p], latest[p], max(0, end - start),
            )  # fmt: skip
        if start < end:
            topic_id = cluster.topic(p.topic).topic_id
            ranges.append(OffsetRange(topic=p.topic, partition=p.partition, start=start, end=end, topic_id=topic_id))
    return ranges


def _resolve(
    cluster: Cluster, position: Start, partitions: list[TopicPartition], *, name: str, if_too_late: bool
) -> Offsets:
    if position.group is not None:
        committed = group_offsets(cluster, position.group, partitions)
        if not committed and partitions:
            topics = ", ".join(sorted({p.topic for p in partitions}))
            raise ConfigError(
                f"startingGroup: group {position.group!r} has no committed offset of {topics}; `ottla groups list`"
                " shows the groups that there are. Give startingOffsets, start= or since= to start without one"
            )
        rest = [p for p in partitions if p not in committed]
        if rest:
            log.warning(
                "group %s has no committed offset of %s: read from the %s",
                position.group, ", ".join(map(str, rest)), "beginning" if position.special == EARLIEST else "end",
            )  # fmt: skip
        return committed | offsets_at(cluster, rest, position.special)
    if position.timestamp_ms is not None:
        return _by_time(cluster, dict.fromkeys(partitions, position.timestamp_ms), name=name, if_too_late=if_too_late)
    if position.timestamps_ms is not None:
        _check_names(position.timestamps_ms, partitions, f"{name}OffsetsByTimestamp")
        timed = {p: t for p, t in position.timestamps_ms.items() if t >= 0}
        found = _by_time(cluster, timed, name=name, if_too_late=if_too_late)
        rest = [p for p in partitions if p not in found]
        return found | offsets_at(cluster, rest, position.special)
    if position.offsets is not None:
        _check_names(position.offsets, partitions, f"{name}Offsets")
        asked = {p: position.offsets.get(p, position.special) for p in partitions}
        numbers = {p: offset for p, offset in asked.items() if offset >= 0}
        for special in (EARLIEST, LATEST):
            numbers |= offsets_at(cluster, [p for p, offset in asked.items() if offset == special], special)
        return numbers
    return offsets_at(cluster, partitions, position.special)


def _by_time(cluster: Cluster, timestamps: Offsets, *, name: str, if_too_late: bool) -> Offsets:
    offsets = {p: offset for p, (offset, _) in cluster.list_offsets(timestamps).items()}
    too_late = [p for p, offset in offsets.items() if offset < 0]
    if too_late and not if_too_late:
        first = too_late[0]
        raise ConfigError(
            f"{first}: no record has timestamp {timestamps[first]} or a later one ({name}Timestamp). Set"
            f" startingOffsetsByTimestampStrategy to latest to start such partitions at their end"
        )
    return offsets | offsets_at(cluster, too_late, LATEST)


def _check_names(offsets: Offsets, partitions: list[TopicPartition], name: str) -> None:
    known = set(partitions)
    unknown = [str(p) for p in offsets if p not in known]
    if unknown:
        raise ConfigError(f"{name}: {', '.join(unknown)} is not among the subscribed partitions")
