"""The source's readers as plain Python objects, called as Spark calls them: no JVM, a real broker.

What Spark was found to do with a Python source is in these tests: it asks for first offsets again, makes a second
reader for the tasks, commits no batch before the next one is planned, and compares offsets as text.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import time
import tracemalloc

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewPartitions
from created_anew import create_anew
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

from ottla.columnar import (
    Cluster,
    OffsetOutOfRange,
    Outcome,
    TopicRecreated,
    TopicWriter,
    begin_transaction,
    end_transaction,
    group_offsets,
    wire_settings,
    write,
)
from ottla.errors import ConfigError, UnknownTopic
from ottla.records import TopicPartition
from ottla.serdes import Json
from ottla.spark import connections
from ottla.spark.connections import cluster_for
from ottla.spark.options import DECODE_OPTION, source_options
from ottla.spark.reading.source import BatchReader, OttlaSource, StreamReader
from ottla.spark.values.source_decoding import pack_recipes

ALL = ReadAllAvailable()


def test_a_batch_that_is_repeated_is_read_by_its_own_tasks_whatever_the_parallelism(kafka, make_topic, open_stream):
    topic = make_topic(partitions=2)
    kafka.produce(topic, ["x"] * 10)
    first = open_stream(topic, startingOffsets="earliest", rowsPerTask="1", tasks="3")
    start = first.initialOffset()
    end = json.loads(json.dumps(first.latestOffset(start, ALL)))
    planned = [task.ranges for task in first.partitions(start, end)]
    assert len(planned) == 3
    for tasks in ("1", "2", "7"):
        restarted = open_stream(topic, startingOffsets="earliest", tasks=tasks)
        assert [task.ranges for task in restarted.partitions(start, end)] == planned
        assert restarted.latestOffset(end, ALL) == end, "nothing new: no batch, though tasks would be others"
    kafka.produce(topic, ["y"] * 10)
    later = open_stream(topic, rowsPerTask="1", tasks="7")
    assert len(later.partitions(end, later.latestOffset(end, ALL))) == 7
    unmarked = {name: value for name, value in end.items() if name != "@tasks"}
    as_before = open_stream(topic, rowsPerTask="1", tasks="3")  # what ReplayDiffers says
    assert [task.ranges for task in as_before.partitions(start, unmarked)] == planned
    for found in (unmarked, *(unmarked | {"@tasks": strange} for strange in (0, -1, "3", None, True, [3]))):
        assert len(later.partitions(start, found)) == 7, found


@pytest.fixture
def open_stream(kafka):
    """A reader as Spark makes it for a query: each call is a start of the query."""
    opened = []

    def make(topic, **options):
        given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic} | options
        opened.append(StreamReader(source_options(given, is_streaming=True)))
        return opened[-1]

    yield make
    for reader in opened:
        reader.stop()


def batch_reader(kafka, topic, **options):
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic} | options
    return BatchReader(source_options(given, is_streaming=False))


def values(reader, *between):
    """What the tasks read: each by a copy of the reader that has travelled, as in Spark."""
    copy = pickle.loads(pickle.dumps(reader))
    tasks = pickle.loads(pickle.dumps(list(reader.partitions(*between))))
    return sorted(v for task in tasks for batch in copy.read(task) for v in batch.column("value").to_pylist())


def ends(offsets, topic):
    return {int(number): offset for number, offset in offsets.get(topic, {}).items()}


def delete_before(kafka, topic, offset, *, partition=0):
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for deleted in admin.delete_records([Place(topic, partition, offset)]).values():
        deleted.result(20)


# A query from its first batch to its last


def test_a_query_reads_budget_by_budget_until_what_was_there_at_its_start_is_read(kafka, make_topic, open_stream):
    topic = make_topic(partitions=2)
    kafka.produce(topic, [f"a{i}" for i in range(7)], partition=0)
    kafka.produce(topic, [f"b{i}" for i in range(2)], partition=1)
    reader = open_stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    assert isinstance(reader, SupportsTriggerAvailableNow)
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    reader.prepareForTriggerAvailableNow()
    kafka.produce(topic, ["later"], partition=1)
    start, seen, batches = reader.initialOffset(), [], []
    while (end := reader.latestOffset(start, limit)) != start:
        batches.append(ends(end, topic))
        seen += values(reader, start, end)
        start = end
    assert batches == [{0: 2, 1: 2}, {0: 6, 1: 2}, {0: 7, 1: 2}]
    assert seen == [*(v.encode() for v in ("a0", "a1", "b0", "b1", "a2", "a3", "a4", "a5", "a6"))]
    assert ends(reader.reportLatestOffset(), topic) == {0: 7, 1: 3}  # beside the batch's end: the lag of each partition


def test_the_end_of_the_log_is_asked_for_once_in_a_micro_batch(kafka, make_topic, open_stream, monkeypatch):
    """Spark asks for the batch's end, and right after it for the log's."""
    topic = make_topic()
    kafka.produce(topic, ["a", "b"])
    reader = open_stream(topic, startingOffsets="earliest")
    start, asked = reader.initialOffset(), []
    ask = Cluster.list_offsets
    monkeypatch.setattr(Cluster, "list_offsets", lambda self, wanted: asked.append(wanted) or ask(self, wanted))
    for count in (2, 3):
        asked.clear()
        start = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert ends(start, topic) == ends(reader.reportLatestOffset(), topic) == {0: count}
        assert len(asked) == 1
        kafka.produce(topic, ["c"])
        assert ends(reader.reportLatestOffset(), topic) == {0: count + 1}  # asked alone, it is the end of now


def test_a_budget_of_bytes_follows_the_size_of_the_records_that_come_next(kafka, make_topic, open_stream):
    topic = make_topic(partitions=2)
    for value in [b"x" * 1_000] * 40 + [b"x" * 20_000] * 4:  # each a batch of its own
        kafka.produce(topic, [value], partition=0)
    reader = open_stream(topic, startingOffsets="earliest", maxBytesPerTrigger="20kB")
    limit = reader.getDefaultReadLimit()
    start, batches = reader.initialOffset(), []
    while (end := reader.latestOffset(start, limit)) != start:
        batches.append(ends(end, topic)[0] - ends(start, topic)[0])
        start = end
    assert sum(batches) == 44
    assert 5 <= batches[0] <= 20
    assert batches[-1] == 1  # one at a time
    everything = open_stream(topic, startingOffsets="earliest", maxBytesPerTrigger="10MB")
    assert ends(everything.latestOffset(everything.initialOffset(), limit), topic) == {0: 44, 1: 0}


def test_a_budget_in_proportion_to_the_lag_is_there_for_who_asks(kafka, make_topic, open_stream):
    topic = make_topic(partitions=2)
    kafka.produce(topic, ["x"] * 90, partition=0)
    kafka.produce(topic, ["x"] * 10, partition=1)
    firsts = []
    for fairness in ("proportional", "maxmin"):
        reader = open_stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger="10", fairness=fairness)
        firsts.append(ends(reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()), topic))
    assert firsts == [{0: 9, 1: 1}, {0: 5, 1: 5}]


def test_a_burst_of_ten_times_delays_no_other_partition_and_takes_no_more_memory(kafka, make_topic, open_stream):
    """Micro-batches of 400 records; a partition gets ten of them at once, and the others ten records before each."""
    topic, quiet = make_topic(partitions=4), (1, 2, 3)
    bounded = {"kafka.fetch.max.bytes": "100000", "kafka.max.partition.fetch.bytes": "100000"}
    reader = open_stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger="400", tasks="1", **bounded)

    def put(partition, count):
        columns = {"value": ["x" * 1_000] * count, "partition": pa.array([partition] * count, pa.int32())}
        unpacked = {"compression.type": "none", "batch.size": "20000"}
        write(topic, pa.table(columns), bootstrap_servers=kafka.bootstrap_servers, settings=unpacked)

    def trigger(start):
        """Return the end of a micro-batch, its rows, and the most memory that reading them took."""
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        tracemalloc.start()
        read = sum(rows.num_rows for task in reader.partitions(start, end) for rows in reader.read(task))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return end, read, peak

    for partition in range(4):
        put(partition, 100)
    at, read, _ = trigger(reader.initialOffset())  # loads what reading needs
    assert read == 400
    for partition in range(4):
        put(partition, 100)
    at, read, usual = trigger(at)
    assert read == 400
    put(0, 4_000)
    sizes, peaks = [], []
    while ends(at, topic)[0] < 4_200:
        for partition in quiet:
            put(partition, 10)
        at, read, peak = trigger(at)
        sizes.append(read)
        peaks.append(peak)
        assert {ends(at, topic)[p] for p in quiet} == {200 + 10 * len(sizes)}, "others are read in the next micro-batch"
    assert sizes == [400] * 10 + [4_000 - 370 * 10 + 30]
    assert max(peaks) < 1.5 * usual


def test_without_a_budget_everything_is_one_batch(kafka, make_topic, open_stream):
    topic = make_topic()
    kafka.produce(topic, [str(i) for i in range(9)])
    reader = open_stream(topic, startingOffsets="earliest")
    assert isinstance(reader.getDefaultReadLimit(), ReadAllAvailable)
    start = reader.initialOffset()
    assert ends(reader.latestOffset(start, ALL), topic) == {0: 9}


def test_first_offsets_that_are_kept_are_the_same_when_spark_asks_again(kafka, make_topic, open_stream, tmp_path):
    """Twice before the first batch, and again after a restart: records that came between must not be lost."""
    topic = make_topic()
    kafka.produce(topic, ["before"])
    kept = {"startingOffsets": "latest", "startingOffsetsFile": str(tmp_path / "checkpoint" / "start.json")}
    reader = open_stream(topic, **kept)
    first = reader.initialOffset()
    kafka.produce(topic, ["between"])
    assert reader.initialOffset() == first
    restarted = open_stream(topic, **kept)
    assert restarted.initialOffset() == first
    assert values(restarted, first, restarted.latestOffset(first, ALL)) == [b"between"]
    unkept = open_stream(topic, startingOffsets="latest")
    assert unkept.initialOffset() != first  # this is what Spark alone would go on with


def test_offsets_are_published_when_a_batch_is_done_and_the_last_one_too(kafka, make_topic, open_stream):
    """Spark commits batch N when it begins N + 1, so the last one never: asking for the next end says it is done."""
    topic = make_topic()
    kafka.produce(topic, [str(i) for i in range(5)])
    reader = open_stream(topic, startingOffsets="earliest", publishGroup=f"{topic}-shown")
    place = TopicPartition(topic, 0)

    def published():
        with Cluster(wire_settings(bootstrap_servers=kafka.bootstrap_servers)) as cluster:
            return group_offsets(cluster, f"{topic}-shown", [place]).get(place)

    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(3))
    assert published() == 0
    reader.commit(end)
    assert published() == 3
    last = reader.latestOffset(end, ALL)
    assert reader.latestOffset(last, ALL) == last
    assert published() == 5


def test_partitions_added_while_a_query_runs_are_read_from_their_first_record(kafka, make_topic, open_stream):
    topic = make_topic(partitions=1)
    kafka.produce(topic, ["a"])
    reader = open_stream(topic)  # from the end
    start = reader.initialOffset()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20)
    kafka.produce(topic, ["b"], partition=0)
    kafka.produce(topic, ["c", "d"], partition=2)
    deadline = time.monotonic() + 60
    while len(ends(end := reader.latestOffset(start, ALL), topic)) < 3:
        assert time.monotonic() < deadline
    assert values(reader, start, end) == [b"b", b"c", b"d"]


def test_a_topic_that_begins_to_match_the_pattern_is_read_from_its_first_record(kafka, make_topic, open_stream):
    one = make_topic("seen")
    two = f"{one}-too"
    reader = open_stream(one)
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribePattern": f"{one}.*"}
    reader = StreamReader(source_options(given, is_streaming=True))
    try:
        start = reader.initialOffset()
        kafka.create_topic(two)
        kafka.produce(two, ["x"])
        assert values(reader, start, reader.latestOffset(start, ALL)) == [b"x"]
    finally:
        reader.stop()


def test_a_topic_of_the_pattern_that_was_deleted_is_said_once_and_never_silent(kafka, make_topic, caplog):
    one = make_topic("kept")
    two = f"{one}-too"
    kafka.create_topic(two)
    kafka.produce(two, ["x"] * 3)
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribePattern": f"{one}.*"}
    strict, lenient = (
        StreamReader(source_options(given | {"onDataLoss": policy}, is_streaming=True)) for policy in ("fail", "skip")
    )
    try:
        start = strict.initialOffset()
        assert lenient.latestOffset(start, ALL) == start
        kafka.delete_topics([two])
        kafka.produce(one, ["y"])
        deadline = time.monotonic() + 60

        def go_on():
            while time.monotonic() < deadline:
                strict.latestOffset(start, ALL)

        with pytest.raises(UnknownTopic, match=rf"{two} was deleted: the query had read {{0: 3}} of it\. Set onData"):
            go_on()
        with caplog.at_level(logging.WARNING):
            end = lenient.latestOffset(start, ALL)
            assert lenient.latestOffset(end, ALL) == end
        assert values(lenient, start, end) == [b"y"]
        assert caplog.text.count(f"{two} was deleted") == 1
    finally:
        strict.stop()
        lenient.stop()


def test_a_query_waits_for_the_minimum_and_no_longer_than_allowed(kafka, make_topic, open_stream, monkeypatch):
    """Spark has no limit of both kinds for Python sources, so the two are put together here."""
    topic = make_topic()
    kafka.produce(topic, [str(i) for i in range(3)])
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "5", "maxTriggerDelay": "10m"}
    reader = open_stream(topic, maxOffsetsPerTrigger="4", **options)
    now = 1_000.0
    monkeypatch.setattr(reader._stream()._cluster, "now", lambda: now)
    start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    assert reader.latestOffset(start, limit) == start
    now += 599
    assert reader.latestOffset(start, limit) == start
    now += 1
    assert ends(reader.latestOffset(start, limit), topic) == {0: 3}  # fewer than the minimum: the delay is over
    kafka.produce(topic, [str(i) for i in range(3, 6)])
    assert ends(reader.latestOffset(start, limit), topic) == {0: 4}  # enough for the minimum, and bounded by the limit


# Positions


def test_times_by_partition_and_their_strategies(kafka, make_topic, open_stream):
    topic = make_topic(partitions=2)
    for partition in (0, 1):
        for minute in range(3):
            kafka.produce(topic, [f"{partition}-{minute}"], partition=partition, timestamp_ms=1_000 + minute)
    some = json.dumps({topic: {"0": 1_001, "1": 1_002}})
    assert values(batch_reader(kafka, topic, startingOffsetsByTimestamp=some)) == [b"0-1", b"0-2", b"1-2"]
    assert values(batch_reader(kafka, topic, endingOffsetsByTimestamp=some)) == [b"0-0", b"1-0", b"1-1"]
    assert ends(open_stream(topic, startingOffsetsByTimestamp=some).initialOffset(), topic) == {0: 1, 1: 2}
    late = json.dumps({topic: {"0": 1_001, "1": 9_999}})
    with pytest.raises(ConfigError, match=r"-1: no record has timestamp 9999 .*Strategy to latest"):
        open_stream(topic, startingOffsetsByTimestamp=late).initialOffset()
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    reader = open_stream(topic, startingOffsetsByTimestamp=late, **latest)
    assert ends(reader.initialOffset(), topic) == {0: 1, 1: 3}
    assert ends(open_stream(topic, startingTimestamp="1002", **latest).initialOffset(), topic) == {0: 2, 1: 2}


def test_a_query_starts_where_a_group_is_and_elsewhere_at_the_beginning_unless_asked_otherwise(
    kafka, make_topic, open_stream
):
    from confluent_kafka import Consumer

    topic = make_topic(partitions=2)
    for partition in (0, 1):
        kafka.produce(topic, [str(i) for i in range(4)], partition=partition)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"{topic}-service"})
    consumer.commit(offsets=[Place(topic, 0, 3)], asynchronous=False)
    consumer.close()
    reader = open_stream(topic, startingGroup=f"{topic}-service")
    assert ends(reader.initialOffset(), topic) == {0: 3, 1: 0}
    reader = open_stream(topic, startingGroup=f"{topic}-service", startingOffsets="latest")
    assert ends(reader.initialOffset(), topic) == {0: 3, 1: 4}


def test_assigned_partitions_are_read_alone_and_must_be_there(kafka, make_topic):
    topic = make_topic(partitions=2)
    for partition in (0, 1):
        kafka.produce(topic, [str(partition)], partition=partition)
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "assign": json.dumps({topic: [1]})}
    assert values(BatchReader(source_options(given, is_streaming=False))) == [b"1"]
    given["assign"] = json.dumps({topic: [1, 5]})
    with pytest.raises(ConfigError, match=f"no such partition: {topic}-5"):
        BatchReader(source_options(given, is_streaming=False)).partitions()


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"tasks": "4"}, [100]),
        ({"tasks": "2", "rowsPerTask": "10"}, [50, 50]),
        ({"tasks": "2", "rowsPerTask": "10", "minPartitions": "5"}, [20] * 5),
        ({"tasks": "2", "maxRecordsPerPartition": "30"}, [25] * 4),
    ],
)
def test_tasks_are_as_many_as_the_rows_and_the_options_call_for(kafka, make_topic, options, sizes):
    topic = make_topic(partitions=2)
    kafka.produce(topic, ["x"] * 90, partition=0)
    kafka.produce(topic, ["x"] * 10, partition=1)
    tasks = batch_reader(kafka, topic, **options).partitions()
    assert [sum(r.size for r in task.ranges) for task in tasks] == sizes


def test_what_is_not_committed_is_not_shown_unless_asked_for_and_markers_hold_nothing_up(
    kafka, make_topic, open_stream
):
    topic = make_topic()
    with Cluster(wire_settings(bootstrap_servers=kafka.bootstrap_servers)) as cluster:
        for value, outcome in (("aborted", Outcome.ABORT), ("committed", Outcome.COMMIT), ("open", None)):
            transaction = begin_transaction(cluster, f"{topic}-{value}")
            writer = TopicWriter(cluster, topic=topic, transaction=transaction)
            writer.write(pa.record_batch({"value": [value]}))
            writer.flush()
            if outcome is not None:
                end_transaction(cluster, transaction, outcome)
        reader = open_stream(topic, startingOffsets="earliest")
        start = reader.initialOffset()
        deadline = time.monotonic() + 60
        while ends(end := reader.latestOffset(start, ALL), topic) != {0: 4}:  # two records, two markers
            assert time.monotonic() < deadline
        assert values(reader, start, end) == [b"committed"]
        every = {"kafka.isolation.level": "read_uncommitted"}
        assert values(batch_reader(kafka, topic, **every)) == [b"aborted", b"committed", b"open"]
        end_transaction(cluster, transaction, Outcome.ABORT)


# What is no longer there


@pytest.mark.parametrize(("policy", "left"), [("earliest", [b"6", b"7"]), ("latest", []), ("skip", [b"6", b"7"])])
def test_offsets_that_are_gone_are_passed_over_and_said(kafka, make_topic, open_stream, caplog, policy, left):
    topic = make_topic()
    kafka.produce(topic, [str(i) for i in range(8)])
    reader = open_stream(topic, startingOffsets="earliest", onDataLoss=policy)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    delete_before(kafka, topic, 6)
    with caplog.at_level(logging.WARNING):
        assert values(reader, start, end) == left
    assert f"{topic}-0: offsets 0 to " in caplog.text
    begun = json.dumps({topic: {"0": 2}})
    caplog.clear()
    assert values(batch_reader(kafka, topic, startingOffsets=begun, onDataLoss=policy)) == left
    assert f"{topic}-0: offsets 2 to " in caplog.text


def test_offsets_that_are_gone_end_the_query_where_nothing_else_was_said(kafka, make_topic, open_stream):
    topic = make_topic()
    kafka.produce(topic, [str(i) for i in range(8)])
    reader = open_stream(topic, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    delete_before(kafka, topic, 6)
    with pytest.raises(OffsetOutOfRange, match=f"{topic}-0"):
        values(reader, start, end)
    with pytest.raises(OffsetOutOfRange, match=f"{topic}-0"):
        batch_reader(kafka, topic, startingOffsets=json.dumps({topic: {"0": 2}})).partitions()
    begun = json.dumps({topic: {"0": 2}})
    assert values(batch_reader(kafka, topic, startingOffsets=begun, failOnDataLoss="false")) == [b"6", b"7"]


def test_each_partition_has_its_own_policy_and_what_was_read_is_not_read_again(kafka, make_topic, open_stream):
    """The partitions became shorter than the query had read, as after an unclean election."""
    topic = make_topic(partitions=3)
    for partition in range(3):
        kafka.produce(topic, [f"{partition}-{i}" for i in range(2)], partition=partition)
    reader = open_stream(topic, onDataLoss=json.dumps({topic: {"0": "earliest", "1": "skip", "2": "fail"}}))
    checkpoint = reader.initialOffset()
    checkpoint[topic] |= {"0": 5, "1": 5}
    end = reader.latestOffset(checkpoint, ALL)
    kafka.produce(topic, ["1-next"], partition=1)
    later = reader.latestOffset(end, ALL)
    assert values(reader, checkpoint, end) == [b"0-0", b"0-1"]
    assert values(reader, end, later) == [b"1-next"]
    checkpoint[topic] |= {"2": 5}
    with pytest.raises(OffsetOutOfRange, match=f"{topic}-2"):
        reader.latestOffset(checkpoint, ALL)


def test_a_topic_that_was_created_anew_ends_the_query_with_its_name(kafka, make_topic, open_stream, caplog):
    topic = make_topic()
    kafka.produce(topic, ["old"] * 3)
    reader = open_stream(topic, startingOffsets="earliest")
    start = reader.initialOffset()
    checkpoint = reader.latestOffset(start, ALL)
    create_anew(kafka, topic)
    kafka.produce(topic, [f"new {i}" for i in range(5)])
    with pytest.raises(TopicRecreated, match=f"{topic} was deleted and created anew: the query had read"):
        open_stream(topic).latestOffset(checkpoint, ALL)
    lenient = open_stream(topic, onDataLoss="earliest")
    end = lenient.latestOffset(checkpoint, ALL)
    assert values(lenient, checkpoint, end) == [f"new {i}".encode() for i in range(5)]
    assert "is read from its beginning" in caplog.text


def test_what_was_planned_of_a_topic_is_not_read_from_the_one_that_took_its_name(kafka, make_topic, open_stream):
    topic = make_topic()
    kafka.produce(topic, ["old"] * 3)
    stream = open_stream(topic, startingOffsets="earliest")
    planned = stream.partitions(start := stream.initialOffset(), stream.latestOffset(start, ALL))
    batch = OttlaSource({"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic})
    reader = batch.reader(batch.schema())
    tasks = reader.partitions()
    create_anew(kafka, topic)
    kafka.produce(topic, ["new"] * 5)
    for source, (task,) in ((stream, planned), (reader, tasks)):
        with pytest.raises(TopicRecreated, match=f"{topic} was deleted and created anew"):
            list(source.read(task))


# What Spark asks of a source


def test_offsets_are_the_same_text_whatever_came_when(kafka, make_topic, open_stream):
    topic = make_topic(partitions=11)
    first, second = (open_stream(topic, startingOffsets="earliest") for _ in range(2))
    texts = [json.dumps(first.initialOffset()), json.dumps(first.latestOffset(second.initialOffset(), ALL))]
    assert texts[0] == texts[1] == json.dumps(json.loads(texts[0]))


@pytest.mark.parametrize(
    "options",
    [{}, {"includeHeaders": "true"}, {"columns": "offset,value"}, {"decode": Json(dict[str, int])}],
    ids=["plain", "headers", "some columns", "decoded"],
)
def test_record_batches_have_the_very_schema_that_was_announced(kafka, make_topic, options):
    """Spark compares the first batch's schema, with what may be null in it, and refuses any difference."""
    topic = make_topic()
    kafka.produce(topic, [b'{"a": 1}', b"broken"], headers=[("h", b"1")])
    serde = options.pop("decode", None)
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic} | options
    if serde is not None:
        given[DECODE_OPTION] = pack_recipes(value=serde, key=None)
    source = OttlaSource(given)
    reader = source.reader(source.schema())
    (task,) = reader.partitions()
    (batch,) = reader.read(task)
    assert batch.schema.equals(to_arrow_schema(source.schema(), timezone="UTC"))
    assert batch.num_rows == 2


def test_what_is_decoded_must_be_among_the_columns(kafka):
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": "orders", "columns": "offset,key"}
    given[DECODE_OPTION] = pack_recipes(value=Json(dict[str, int]), key=None)
    with pytest.raises(ConfigError, match="columns: found offset, key, wanted value among them"):
        OttlaSource(given).schema()


def test_a_budget_of_fewer_records_than_partitions_reaches_each_of_them_in_turn(kafka, make_topic, open_stream):
    topic = make_topic(partitions=3)
    for partition in range(3):
        kafka.produce(topic, ["x"] * (partition + 2), partition=partition)
    reader = open_stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    start = reader.initialOffset()
    for _ in range(3):
        start = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert ends(start, topic) == {0: 1, 1: 1, 2: 1}


def test_nothing_to_read_is_one_task_that_reads_nothing(kafka, make_topic):
    reader = batch_reader(kafka, make_topic())
    (task,) = reader.partitions()
    assert list(reader.read(task)) == []


def test_what_a_reader_learns_in_one_process_is_not_sent_to_another(kafka, make_topic, open_stream):
    """Tasks read with a copy that was made before the query began: a position in it would be an old one."""
    reader = open_stream(make_topic(), startingOffsets="earliest")
    before = pickle.dumps(reader)
    reader.prepareForTriggerAvailableNow()
    reader.initialOffset()
    assert pickle.dumps(reader) == before


def test_connections_are_kept_over_tasks_and_never_over_a_fork(kafka, monkeypatch):
    settings = wire_settings({"client.id": "forked"}, bootstrap_servers=kafka.bootstrap_servers)
    mine = cluster_for(settings)
    assert cluster_for(settings) is mine
    monkeypatch.setattr(os, "getpid", lambda: -1)
    other = cluster_for(settings)
    assert other is not mine
    monkeypatch.undo()
    for pid in (os.getpid(), -1):
        connections._clusters.pop((pid, 0, settings)).close()
