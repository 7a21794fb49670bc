"""Filters of a batch read, as far as they say which offsets need not be read.

Spark hands over the conjuncts of `where`: those on `topic`, `partition`, `offset` and `timestamp` narrow the ranges.
All of them go back to Spark, which applies them again, so that a range may still be too wide and is never too short:

- `topic`, `partition` and `offset` are exact.
- `timestamp` narrows only the beginning: before the first record of that time or later, none is. Behind it there may be
  records with earlier times, so an upper bound says nothing about the end.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from ottla.records import TopicPartition
from ottla.wire_client import Cluster, OffsetRange

_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a read needs at most. None: all of them. `first` is inclusive, `end` exclusive."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first: int = 0
    end: int | None = None
    since_ms: int | None = None

    def wants(self, partition: TopicPartition) -> bool:
        is_topic = self.topics is None or partition.topic in self.topics
        return is_topic and (self.partitions is None or partition.partition in self.partitions)

    def within(self, *, topics: Iterable[str] | None = None, partitions: Iterable[int] | None = None) -> Bounds:
        """Return the bounds that also hold to these names or numbers."""
        found = self
        if topics is not None:
            names = frozenset(topics)
            found = replace(found, topics=names if found.topics is None else found.topics & names)
        if partitions is not None:
            numbers = frozenset(partitions)
            found = replace(found, partitions=numbers if found.partitions is None else found.partitions & numbers)
        return found

    def at_least(self, offset: int) -> Bounds:
        return replace(self, first=max(self.first, offset))

    def below(self, offset: int) -> Bounds:
        return replace(self, end=offset if self.end is None else min(self.end, offset))

    def since(self, timestamp_ms: int) -> Bounds:
        return replace(self, since_ms=timestamp_ms if self.since_ms is None else max(self.since_ms, timestamp_ms))


def spark_hands_filters() -> bool:
    """Return whether this is the process in which Spark pushes filters down.

    In all others a reader must not have `pushFilters`: Spark refuses it while the pushdown is off.
    """
    module = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _WORKER in (getattr(module, "name", ""), *sys.argv[:2])


def bounds_of(filters: Iterable[Any]) -> Bounds:
    """Return the bounds that Spark's filters set, all of which must hold. Other filters set none."""
    from pyspark.sql import datasource as spark

    bounds = Bounds()
    for each in filters:
        column = each.attribute[0] if len(getattr(each, "attribute", ())) == 1 else None
        value = getattr(each, "value", None)
        if isinstance(each, spark.EqualTo | spark.EqualNullSafe):
            bounds = _any_of(bounds, column, [value])
        elif isinstance(each, spark.In):
            bounds = _any_of(bounds, column, list(value or ()))
        elif isinstance(each, spark.GreaterThan | spark.GreaterThanOrEqual):
            is_strict = isinstance(each, spark.GreaterThan)
            if column == "offset" and isinstance(value, int):
                bounds = bounds.at_least(value + is_strict)
            elif column == "timestamp" and isinstance(value, datetime):
                bounds = bounds.since(_milliseconds(value))
        elif isinstance(each, spark.LessThan | spark.LessThanOrEqual):
            is_inclusive = isinstance(each, spark.LessThanOrEqual)
            if column == "offset" and isinstance(value, int):
                bounds = bounds.below(value + is_inclusive)
    return bounds


def narrowed(cluster: Cluster, ranges: list[OffsetRange], bounds: Bounds) -> list[OffsetRange]:
    """Return the parts of the ranges that lie within the bounds. The brokers are asked only if there is a bound of
    time."""
    wanted = [each for each in ranges if bounds.wants(TopicPartition(each.topic, each.partition))]
    since: dict[TopicPartition, int] = {}
    if bounds.since_ms is not None and wanted:
        times = {TopicPartition(each.topic, each.partition): bounds.since_ms for each in wanted}
        since = {partition: offset for partition, (offset, _) in cluster.list_offsets(times).items()}
    found = []
    for each in wanted:
        first_of_time = since.get(TopicPartition(each.topic, each.partition), each.start)
        start = max(each.start, bounds.first, each.end if first_of_time < 0 else first_of_time)
        end = each.end if bounds.end is None else min(each.end, bounds.end)
        if start < end:
            found.append(replace(each, start=start, end=end))
    return found


def _any_of(bounds: Bounds, column: str | None, values: list[Any]) -> Bounds:
    if column == "topic" and all(isinstance(value, str) for value in values):
        return bounds.within(topics=values)
    if not all(isinstance(value, int) for value in values):
        moments = [value for value in values if isinstance(value, datetime)]
        is_time = column == "timestamp" and moments and len(moments) == len(values)
        return bounds.since(min(map(_milliseconds, moments))) if is_time else bounds
    if column == "partition":
        return bounds.within(partitions=values)
    if column == "offset" and values:
        return bounds.at_least(min(values)).below(max(values) + 1)
    return bounds


def _milliseconds(moment: datetime) -> int:
    """Return a time in Kafka's unit, rounded down; 0 for a time before 1970. Spark's have a zone, or are in UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, int(moment.timestamp() * 1000))
