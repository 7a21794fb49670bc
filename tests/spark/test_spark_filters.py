"""Conditions on partition, offset and timestamp become ranges: others are not fetched, and nothing is missed."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from ottla.columnar import Cluster, wire_settings
from ottla.errors import ConfigError
from ottla.spark.reading.filters import Condition, from_option, narrowed, parse_where, to_option
from ottla.wire_client import OffsetRange

pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException

import ottla.spark

START_MS = 1_700_000_000_000
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def at(seconds):
    return datetime.fromtimestamp(START_MS / 1000 + seconds, UTC).isoformat()


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("partition = 1", [Condition("partition", "=", (1,))]),
        ("PARTITION in (1, 2) and offset>=7", [Condition("partition", "=", (1, 2)), Condition("offset", ">=", (7,))]),
        ("topic = 'a AND b'", [Condition("topic", "=", ("a AND b",))]),
        (f" timestamp < '{at(5)}' ", [Condition("timestamp", "<", (START_MS + 5000,))]),
        ("timestamp>1700000000000", [Condition("timestamp", ">", (START_MS,))]),
    ],
)
def test_conditions_read_as_in_sql(text, conditions):
    assert parse_where(text) == tuple(conditions)
    assert from_option(to_option(parse_where(text))) == tuple(conditions)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "found ''"),
        ("partition = 1 AND", "found ''"),
        ("partition = 1 OR partition = 2", "found 'OR partition = 2'"),
        ("partition = 1 AND (offset > 3)", r"found '\(offset > 3\)'"),
        ("partition = 1 ANDoffset > 3", "found 'ANDoffset > 3'"),
        ("partition = 1 AND NOT offset = 3", "found 'NOT offset = 3'"),
        ("offset IN ()", r"found 'offset IN \(\)'"),
        ("value = 'x'", "found \"value = 'x'\""),
        ("offset = -1", "found 'offset = -1'"),
        ("offset = '1'", "offset: found '1', wanted a number"),
        ("topic = 1", "topic: found 1, wanted text in quotes"),
        ("timestamp > 'soon'", "timestamp: found 'soon'"),
    ],
)
def test_other_conditions_are_refused(text, found):
    with pytest.raises(ConfigError, match=f"where: {found}"):
        parse_where(text)


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

        def found(where):
            return [(r.partition, r.start, r.end) for r in narrowed(cluster, ranges, parse_where(where))]

        assert found(f"timestamp >= '{at(3)}'") == [(0, 3, 10), (1, 3, 10)]
        assert found(f"timestamp > '{at(3)}' AND timestamp > '{at(1)}'") == [(0, 4, 10), (1, 5, 10)]
        assert found(f"timestamp IN ('{at(8)}', '{at(6)}')") == [(0, 6, 10), (1, 6, 10)]
        assert found(f"timestamp < '{at(3)}'") == [(0, 0, 10), (1, 0, 10)]
        assert found(f"timestamp >= '{at(60)}'") == []
        assert found("partition = 1 AND offset >= 8 AND offset < 20") == [(1, 8, 10)]
        assert found("partition > 0 AND offset <= 4") == [(1, 0, 5)]
        assert found("offset IN (7, 3)") == [(0, 3, 8), (1, 3, 8)]
        assert found("offset = 4 AND offset > 4") == []
        assert found("topic = 'another'") == []


@pytest.mark.spark
def test_spark_fetches_what_the_conditions_want_and_shows_the_same_rows(spark, kafka, topics, topic):
    everything = {(row.partition, row.offset): row for row in topics.read(topic, tasks=1).collect()}
    times = {place: round((row.timestamp.timestamp() * 1000 - START_MS) / 1000) for place, row in everything.items()}
    for where, fetched, wanted in (
        ("partition = 1 AND offset >= 7", 3, lambda p, o: p == 1 and o >= 7),
        ("offset IN (2, 4)", 6, lambda p, o: o in (2, 4)),
        (f"timestamp >= '{at(3)}'", 14, lambda p, o: times[p, o] >= 3),
        (f"timestamp <= '{at(1)}'", 20, lambda p, o: times[p, o] <= 1),
        (f"topic = '{topic}' AND timestamp = '{at(0)}'", 20, lambda p, o: times[p, o] == 0),
        ("partition > 5", 0, lambda p, o: False),
    ):
        chosen = ottla.spark.read(spark, topic, bootstrap_servers=kafka.bootstrap_servers, tasks=1, where=where)
        found = {(row.partition, row.offset): row for row in chosen.collect()}
        assert found == {place: row for place, row in everything.items() if wanted(*place)}, where
        assert _read(chosen) == fetched, where


@pytest.mark.spark
@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_a_frame_that_is_used_twice_lacks_no_row(spark, topics, topic, pushdown):
    """Spark keeps the ranges of the filters that it handed over last, for all uses of a DataFrame."""
    spark.conf.set(PUSHDOWN, pushdown)
    try:
        rows = topics.read(topic)
        newest = rows.where("partition = 1 AND offset >= 7")
        assert newest.count() == 3
        assert rows.count() == 20
        assert rows.union(newest).count() == 23
        assert newest.union(rows.where("partition = 0 AND offset < 4")).count() == 7
    finally:
        spark.conf.unset(PUSHDOWN)


@pytest.mark.spark
def test_a_condition_needs_its_column_and_is_no_option_of_the_format(spark, kafka, topics, topic):
    asked = {"bootstrap_servers": kafka.bootstrap_servers, "where": "timestamp > '-2h'"}
    with pytest.raises(ConfigError, match="where: found timestamp, which is not among the columns value"):
        ottla.spark.read(spark, topic, columns="value", **asked)
    with pytest.raises(AnalysisException, match=r"no such option; it is an argument of ottla.spark.read"):
        ottla.spark.read_stream(spark, topic, **asked)


def _read(frame):
    """The rows that the scan of a frame has read."""
    plan = frame._jdf.queryExecution().executedPlan()
    frame.collect()
    text = plan.toString()
    assert "BatchScan" in text, json.dumps(text)
    leaves = plan.collectLeaves()
    return int(leaves.apply(0).metrics().apply("numOutputRows").value())
