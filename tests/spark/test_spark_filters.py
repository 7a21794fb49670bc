"""Filters on partition, offset and timestamp become ranges: others are not fetched, and nothing is missed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from ottla.columnar import Cluster, wire_settings
from ottla.records import TopicPartition
from ottla.spark.reading.filters import Bounds, bounds_of, narrowed
from ottla.wire_client import OffsetRange

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

START_MS = 1_700_000_000_000


def at(seconds):
    return datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([], Bounds()),
        ([EqualTo(("partition",), 1)], Bounds(partitions=frozenset({1}))),
        ([In(("partition",), (1, 2)), EqualTo(("partition",), 2)], Bounds(partitions=frozenset({2}))),
        ([EqualTo(("topic",), "orders")], Bounds(topics=frozenset({"orders"}))),
        ([GreaterThan(("offset",), 4), LessThanOrEqual(("offset",), 9)], Bounds(first=5, end=10)),
        ([GreaterThanOrEqual(("offset",), 4), LessThan(("offset",), 9)], Bounds(first=4, end=9)),
        ([EqualTo(("offset",), 4)], Bounds(first=4, end=5)),
        ([In(("offset",), (7, 3))], Bounds(first=3, end=8)),
        ([In(("offset",), ())], Bounds()),
        ([GreaterThan(("timestamp",), at(5))], Bounds(since_ms=START_MS + 5000)),
        ([EqualTo(("timestamp",), at(5).astimezone(timezone(timedelta(hours=2))))], Bounds(since_ms=START_MS + 5000)),
        ([GreaterThanOrEqual(("timestamp",), at(5).replace(tzinfo=None))], Bounds(since_ms=START_MS + 5000)),
        ([LessThan(("timestamp",), at(5))], Bounds()),
        ([Not(EqualTo(("partition",), 1)), IsNotNull(("partition",)), StringStartsWith(("topic",), "o")], Bounds()),
        ([EqualTo(("value", "partition"), 1), EqualTo(("partition",), None), EqualTo(("key",), b"1")], Bounds()),
    ],
)
def test_the_bounds_of_filters(filters, bounds):
    assert bounds_of(filters) == bounds


@pytest.fixture
def topic(kafka, make_topic):
    """Two partitions of ten records, a second apart; the fourth of the second partition is late."""
    name = make_topic(partitions=2)
    for partition in range(2):
        for i in range(10):
            seconds = 0 if (partition, i) == (1, 4) else i
            kafka.produce(name, [f"{partition}-{i}"], partition=partition, timestamp_ms=START_MS + seconds * 1000)
    return name


def test_ranges_are_narrowed_by_time_without_missing_a_late_record(kafka, topic):
    with Cluster(wire_settings(bootstrap_servers=kafka.bootstrap_servers)) as cluster:
        ranges = [OffsetRange(topic=topic, partition=p, start=0, end=10) for p in range(2)]

        def found(bounds):
            return [(r.partition, r.start, r.end) for r in narrowed(cluster, ranges, bounds)]

        assert found(Bounds(since_ms=START_MS + 3000)) == [(0, 3, 10), (1, 3, 10)]
        assert found(Bounds(since_ms=START_MS + 60_000)) == []
        assert found(Bounds(partitions=frozenset({1}), first=8, end=20)) == [(1, 8, 10)]
        assert found(Bounds(topics=frozenset({"another"}))) == []
        assert TopicPartition(topic, 0).partition == 0


@pytest.mark.spark
def test_spark_fetches_what_the_filters_want_and_shows_the_same_rows(spark, topics, topic):
    rows = topics.read(topic, tasks=1)
    plain = {(row.partition, row.offset): row for row in rows.collect()}
    for where, fetched in {
        "partition = 1 AND offset >= 7": 3,
        "offset IN (2, 3)": 4,
        "timestamp >= timestamp_millis(1700000005000)": 10,
        "timestamp < timestamp_millis(1700000001000)": 20,
        "partition = 1 OR offset = 0": 20,
    }.items():
        chosen = rows.where(where)
        found = chosen.collect()
        wanted = spark.createDataFrame(list(plain.values()), rows.schema).where(where).count()
        assert len(found) == wanted > 0, where
        assert all(plain[row.partition, row.offset] == row for row in found)
        assert _read(chosen) == fetched, where


def _read(frame):
    """The rows that the scan of a frame has read."""
    frame.write.format("noop").mode("overwrite").save()
    plan = frame._jdf.queryExecution().executedPlan()
    frame.collect()
    text = plan.toString()
    assert "BatchScan" in text, json.dumps(text)
    leaves = plan.collectLeaves()
    return int(leaves.apply(0).metrics().apply("numOutputRows").value())
