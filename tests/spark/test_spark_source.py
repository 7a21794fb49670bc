"""`format("ottla")` as a source: batch reads and streams, with a real Spark and a real broker."""

from __future__ import annotations

import pytest

from ottla.columnar import Cluster, group_offsets, wire_settings, write
from ottla.records import TopicPartition

pytestmark = pytest.mark.spark


def offsets_of(progress, which):
    return {
        int(p): o for p, o in next(iter(v for k, v in progress["sources"][0][which].items() if k[0] != "@")).items()
    }


@pytest.mark.representative
def test_a_batch_read_has_the_columns_and_types_of_sparks_kafka_format(topics, kafka, make_topic):
    topic = make_topic(partitions=2)
    kafka.produce(
        topic, [b"one"], keys=[b"k"], headers=[("h", b"1"), ("h", None)], partition=1, timestamp_ms=1_700_000_000_123
    )
    frame = topics.read(topic, includeHeaders=True)
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    row = frame.selectExpr("*", "unix_millis(timestamp) ms").first()
    assert (row.key, row.value, row.topic, row.partition, row.offset) == (b"k", b"one", topic, 1, 0)
    assert (row.ms, row.timestampType) == (1_700_000_000_123, 0)
    assert [(h.key, h.value) for h in row.headers] == [("h", b"1"), ("h", None)]


def test_a_batch_read_covers_exactly_the_offsets_it_was_asked_for(topics, kafka, make_topic):
    topic = make_topic(partitions=3)
    for p in range(3):
        kafka.produce(topic, [str(i) for i in range(10)], partition=p, timestamp_ms=1_000 + p)
    assert topics.read(topic).count() == 30
    some = topics.read(
        topic,
        startingOffsets=f'{{"{topic}": {{"0": 4, "1": -1, "2": -2}}}}',
        endingOffsets=f'{{"{topic}": {{"0": 6, "2": -1}}}}',
        columns="partition,offset",
    )
    assert sorted(tuple(r) for r in some.collect()) == [(0, 4), (0, 5), *[(2, i) for i in range(10)]]
    late = topics.read(topic, startingTimestamp=1_001, startingOffsetsByTimestampStrategy="latest")
    assert {r.partition for r in late.collect()} == {1, 2}
    assert topics.read(topic, endingTimestamp=1_001).count() == 10


def test_topics_are_found_by_pattern_and_partitions_by_assignment(topics, kafka, make_topic):
    one, two = make_topic("shop-a", partitions=2), make_topic("shop-b")
    kafka.produce(one, [b"x"], partition=1)
    kafka.produce(two, [b"y"])
    pattern = f"({one}|{two})"
    by_pattern = topics._with(topics.spark.read, {"subscribePattern": pattern}).load()
    assert sorted(r.value for r in by_pattern.collect()) == [b"x", b"y"]
    assigned = topics._with(topics.spark.read, {"assign": f'{{"{one}": [0]}}'}).load()
    assert assigned.count() == 0


def test_a_query_that_stops_early_leaves_a_worker_that_can_read_on(topics, kafka, make_topic):
    topic = make_topic()
    kafka.produce(topic, [b"x" * 1000] * 5_000)
    frame = topics.read(topic, **{"kafka.max.partition.fetch.bytes": 20_000})
    for _ in range(3):
        assert len(frame.limit(3).collect()) == 3
    assert frame.count() == 5_000


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"maxOffsetPerTrigger": "5"}, "did you mean maxOffsetsPerTrigger"),
        (
            {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "10"},
            "no broker answered at 127.0.0.1:1",
        ),
    ],
)
def test_a_wrong_option_reaches_the_user_as_its_own_sentence(topics, options, reason):
    with pytest.raises(Exception, match=reason):
        topics.read("orders", **options).collect()


def test_what_the_source_of_a_stream_raises_reaches_the_user_as_its_own_sentence(topics):
    with pytest.raises(Exception, match="no-such-topic: the cluster has no such topic"):
        topics.collect(topics.stream("no-such-topic"))


def test_available_now_reads_what_is_there_in_batches_of_the_budget_and_starves_no_partition(topics, kafka, make_topic):
    topic = make_topic(partitions=4)
    kafka.produce(topic, [b"big"] * 2_000, partition=0)
    for p in (1, 2, 3):
        kafka.produce(topic, [b"small"] * 50, partition=p)
    batches, progress = topics.collect(topics.stream(topic, maxOffsetsPerTrigger=1_000))
    assert [len(rows) for rows in batches] == [1_000, 1_000, 150]
    first = [r.partition for r in batches[0]]
    assert [first.count(p) for p in range(4)] == [850, 50, 50, 50]
    seen = sorted((r.partition, r.offset) for rows in batches for r in rows)
    assert seen == sorted([(0, i) for i in range(2_000)] + [(p, i) for p in (1, 2, 3) for i in range(50)])
    # What is behind, by partition: the end of the log is beside the end of the batch.
    lag = offsets_of(progress[0], "latestOffset")[0] - offsets_of(progress[0], "endOffset")[0]
    assert lag == 2_000 - 850


def test_a_restart_goes_on_where_the_checkpoint_is_and_partitions_may_be_added_meanwhile(topics, kafka, make_topic):
    from confluent_kafka.admin import AdminClient, NewPartitions

    topic, seen = make_topic(partitions=1), []
    kafka.produce(topic, [b"a", b"b"])
    batches, _ = topics.collect(topics.stream(topic))
    assert [[r.value for r in rows] for rows in batches] == [[b"a", b"b"]]
    kafka.produce(topic, [b"c"])
    query = topics.start(
        topics.stream(topic)
        .writeStream.foreachBatch(lambda rows, number: seen.extend(r.value for r in rows.collect()))
        .option("checkpointLocation", str(topics.tmp_path / "checkpoint"))
    )
    try:
        topics.wait(query, lambda: seen == [b"c"])
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(20)
        kafka.produce(topic, [b"d"], partition=1)
        topics.wait(query, lambda: seen == [b"c", b"d"])
    finally:
        query.stop()


def test_offsets_are_published_with_the_last_batch_of_available_now_and_are_where_reading_can_start(
    topics, kafka, make_topic
):
    topic = make_topic(partitions=2)
    kafka.produce(topic, [b"x"] * 7, partition=0)
    kafka.produce(topic, [b"x"] * 5, partition=1)
    topics.collect(topics.stream(topic, maxOffsetsPerTrigger=6, publishGroup="report"))
    with Cluster(wire_settings(bootstrap_servers=kafka.bootstrap_servers)) as cluster:
        partitions = [TopicPartition(topic, p) for p in range(2)]
        assert group_offsets(cluster, "report", partitions) == dict(zip(partitions, (7, 5), strict=True))
    kafka.produce(topic, [b"new"], partition=1)
    assert [r.value for r in topics.read(topic, startingGroup="report").collect()] == [b"new"]


def test_reading_in_spark_and_without_it_gives_the_same_rows(topics, kafka, make_topic):
    import pyarrow as pa

    from ottla.columnar import read

    topic = make_topic(partitions=3)
    keys = [None if i % 7 == 0 else f"key-{i % 11}" for i in range(5_000)]
    rows = pa.table({"key": keys, "value": [f"value {i}" * (i % 5) for i in range(5_000)]})
    write(topic, rows, bootstrap_servers=kafka.bootstrap_servers)
    columns = ["partition", "offset", "key", "value"]
    direct = read(topic, bootstrap_servers=kafka.bootstrap_servers, columns=columns).read_all().to_pylist()
    by_spark = topics.read(topic, columns=",".join(columns), minPartitions=5).collect()
    assert sorted((tuple(r) for r in by_spark), key=lambda r: r[:2]) == sorted(
        (tuple(r.values()) for r in direct), key=lambda r: r[:2]
    )
