"""`format("ottla")` as a sink, and the trap that decides its design."""

from __future__ import annotations

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from ottla.columnar import Cluster, TopicWriter, wire_settings
from ottla.spark.options import sink_options
from ottla.spark.writing.sink import write_task

pytestmark = pytest.mark.spark


@pytest.mark.representative
def test_a_batch_write_takes_sparks_columns(topics, kafka, make_topic):
    from pyspark.sql import functions as f

    topic = make_topic(partitions=3)
    frame = topics.spark.createDataFrame(
        [("k1", "v1", 2, [("h", bytearray(b"1"))]), (None, None, 0, None)],
        "key string, value string, partition int, headers array<struct<key:string,value:binary>>",
    ).withColumn("timestamp", f.timestamp_millis(f.lit(1_700_000_000_123)))
    topics.write(frame, topic=topic)
    records = kafka.consume_all(topic)
    assert [(r.partition, r.raw_key, r.raw_value, r.headers) for r in records] == [
        (0, None, None, []),
        (2, b"k1", b"v1", [("h", b"1")]),
    ]
    assert {r.timestamp_ms for r in records} == {1_700_000_000_123}


def test_rows_go_to_the_topic_they_name(topics, kafka, make_topic):
    one, two = make_topic("one"), make_topic("two")
    frame = topics.spark.createDataFrame([(one, "1"), (two, "2"), (one, "3")], "topic string, value string")
    topics.write(frame)
    assert sorted(r.raw_value for r in kafka.consume_all(one)) == [b"1", b"3"]
    assert [r.raw_value for r in kafka.consume_all(two)] == [b"2"]


def test_keys_go_where_every_other_client_with_murmur2_sends_them(topics, kafka, make_topic):
    from confluent_kafka import Producer

    ours, theirs = make_topic("ours", partitions=7), make_topic("theirs", partitions=7)
    frame = topics.spark.range(200).selectExpr("concat('key-', id) key", "cast(id as string) value")
    topics.write(frame, topic=ours, delivery="exactly-once")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2"})
    for i in range(200):
        producer.produce(theirs, str(i), f"key-{i}")
    assert producer.flush(10) == 0
    placed = [{r.raw_key: r.partition for r in kafka.consume_all(t, at_least=200)} for t in (ours, theirs)]
    assert placed[0] == placed[1]


def test_a_stream_from_topic_to_topic_as_it_is_keeps_every_record_whole(topics, kafka, make_topic):
    source, sink = make_topic("in", partitions=3), make_topic("out", partitions=3)
    for p in range(3):
        kafka.produce(source, [f"{p}-{i}" for i in range(500)], headers=[("p", str(p).encode())], partition=p)
    query = topics.run(topics.stream(source, includeHeaders=True, maxOffsetsPerTrigger=400), topic=sink)
    assert query.lastProgress.sink.numOutputRows >= 0
    copied = kafka.consume_all(sink, at_least=1_500)
    assert sorted(r.raw_value.decode() for r in copied) == sorted(f"{p}-{i}" for p in range(3) for i in range(500))
    assert all(r.headers == [("p", str(r.partition).encode())] for r in copied)
    assert all(r.raw_value.startswith(b"%d-" % r.partition) for r in copied)


def test_rows_that_are_no_records_are_refused_before_any_task(topics):
    with pytest.raises(Exception, match="column value: found int, wanted binary or string"):
        topics.write(topics.spark.range(1).selectExpr("1 value"), topic="t")


def test_overwriting_a_topic_is_refused(topics, make_topic):
    frame = topics.spark.range(1).selectExpr("'a' value")
    writer = topics._with(frame.write, {"topic": make_topic()}).mode("overwrite")
    with pytest.raises(Exception, match="cannot be overwritten"):
        writer.save()


def test_a_record_over_the_limit_fails_the_write_by_its_own_name(topics, make_topic):
    topic = make_topic(config={"max.message.bytes": 10_000})
    frame = topics.spark.range(1).selectExpr("repeat('x', 20000) value")
    with pytest.raises(Exception, match=r"record is 20,\d+ bytes encoded, the limit is 10,000 bytes"):
        topics.write(frame, topic=topic)


def test_a_killed_tasks_input_ends_normally_and_truncated(topics, tmp_path):
    """The trap (SPARK.md 4): one task fails, Spark kills the others, and their input iterators just end.

    Whatever commits at the end of a task's input commits a truncated batch. This test shows that Spark still does it;
    the next ones show that the sink commits nothing there.
    """
    marks = tmp_path / "marks"
    marks.mkdir()
    rows_per_task = 4_000_000  # never read to the end: at half a second a batch that takes far longer than a kill

    def work(batches):
        import time as clock

        import pyarrow as pa
        from pyspark import TaskContext

        number = TaskContext.get().partitionId()
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            if number == 0:
                deadline = clock.monotonic() + 20
                while not (marks / "running").exists() and clock.monotonic() < deadline:
                    clock.sleep(0.005)
                raise RuntimeError("this task fails")
            (marks / "running").touch()
            clock.sleep(0.5)
        (marks / f"ended-{rows}").touch()
        yield pa.RecordBatch.from_pydict({"n": [rows]})

    frame = topics.spark.range(2 * rows_per_task, numPartitions=2).mapInArrow(work, "n long")
    with pytest.raises(Exception, match="this task fails"):
        frame.collect()
    import time

    deadline = time.monotonic() + 20
    while not (ended := list(marks.glob("ended-*"))) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(ended) == 1
    assert 0 < int(ended[0].name.removeprefix("ended-")) < rows_per_task


def test_a_failed_task_is_written_again_and_nothing_is_missing(kafka, make_topic):
    """At least once: rows of the failed attempt are there twice where they had been acknowledged, none is missing."""
    topic = make_topic(partitions=2)
    options = sink_options({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic})
    rows = [pa.record_batch({"value": [f"{number}-{i}" for i in range(100)]}) for number in range(3)]

    def fails():
        yield from rows[:2]
        raise RuntimeError("fails once")

    with pytest.raises(RuntimeError, match="fails once"):
        write_task(options, fails())
    assert write_task(options, iter(rows)).rows == 300
    values = [r.raw_value.decode() for r in kafka.consume_all(topic, at_least=300)]
    assert set(values) == {f"{number}-{i}" for number in range(3) for i in range(100)}
    assert len(values) <= 500


def test_an_abandoned_writer_leaves_its_connections_clean_for_the_next(kafka, make_topic):
    """A worker that is used again must not read the answers of the task before it."""
    topic = make_topic()
    rows = pa.record_batch({"value": ["x" * 100] * 1_000})
    with Cluster(wire_settings(bootstrap_servers=kafka.bootstrap_servers)) as cluster:
        killed = TopicWriter(cluster, topic=topic)
        killed.write(rows)
        killed.abandon()
        with TopicWriter(cluster, topic=topic) as writer:
            writer.write(rows)
            assert writer.flush().rows == 1_000
    assert len(kafka.consume_all(topic)) >= 1_000
