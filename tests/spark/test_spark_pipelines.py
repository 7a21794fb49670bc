"""Windows, joins and dedup over the source: plain Spark, nothing hidden."""

from __future__ import annotations

import dataclasses

import pytest

from ottla.serdes import Avro, SerdeContext
from ottla.spark import Pipeline, read, read_stream, split

pytestmark = pytest.mark.spark

MINUTE_MS = 60_000
FIRST_MINUTE = 28_000_000
START_MS = FIRST_MINUTE * MINUTE_MS


@dataclasses.dataclass
class Sale:
    id: str
    shop: str
    amount: int
    at_ms: int


def send(kafka, topic, *sales):
    serde = Avro(Sale)
    kafka.produce(topic, [serde.serialize(s, SerdeContext(topic)) for s in sales], keys=[s.shop for s in sales])


def totals(sales):
    """The pipeline's definition: repeats dropped, one total per shop and minute. The same for a batch and a stream."""
    from pyspark.sql import functions as f

    events = sales.select("value.*").withColumn("at", f.timestamp_millis("at_ms"))
    if events.isStreaming:
        unique = events.withWatermark("at", "10 minutes").dropDuplicatesWithinWatermark(["id"])
    else:
        unique = events.dropDuplicates(["id"])
    minutes = unique.groupBy(f.window("at", "1 minute"), "shop").agg(f.sum("amount").alias("total"))
    return minutes.selectExpr(f"unix_millis(window.start) div {MINUTE_MS} - {FIRST_MINUTE} minute", "shop", "total")


SALES = [
    Sale("a", "north", 1, START_MS),
    Sale("b", "north", 2, START_MS + 10_000),
    Sale("a", "north", 1, START_MS),  # a producer's repeat
    Sale("c", "south", 5, START_MS + MINUTE_MS),
    Sale("d", "north", 7, START_MS + MINUTE_MS + 59_999),
]
EXPECTED = [(0, "north", 3), (1, "north", 7), (1, "south", 5)]


def test_one_definition_gives_the_same_totals_as_batch_and_as_stream(topics, kafka, make_topic):
    topic = make_topic(partitions=2)
    send(kafka, topic, *SALES)
    batch, _ = split(read(topics.spark, topic, bootstrap_servers=kafka.bootstrap_servers, value=Avro(Sale)))
    assert sorted(tuple(r) for r in totals(batch).collect()) == EXPECTED

    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 2}
    stream, _ = split(
        read_stream(topics.spark, topic, bootstrap_servers=kafka.bootstrap_servers, value=Avro(Sale), **options)
    )
    query = topics.start(
        totals(stream)
        .writeStream.outputMode("complete")
        .format("memory")
        .queryName("minutes")
        .option("checkpointLocation", str(topics.tmp_path / "minutes"))
        .trigger(availableNow=True)
    )
    query.awaitTermination(200)
    assert sorted(tuple(r) for r in topics.spark.table("minutes").collect()) == EXPECTED


def test_a_stream_joins_a_topic_read_as_a_table(topics, kafka, make_topic):
    sales, shops = make_topic("sales"), make_topic("shops")
    send(kafka, sales, *SALES)
    kafka.produce(shops, ["Oslo", "Rome"], keys=["north", "south"])
    cities = read(topics.spark, shops, bootstrap_servers=kafka.bootstrap_servers, key=str, value=str)
    stream, _ = split(
        read_stream(
            topics.spark,
            sales,
            bootstrap_servers=kafka.bootstrap_servers,
            value=Avro(Sale),
            startingOffsets="earliest",
        )
    )
    joined = stream.selectExpr("value.shop key", "value.amount").join(cities.selectExpr("key", "value city"), "key")
    batches, _ = topics.collect(joined)
    assert sorted((r.city, r.amount) for rows in batches for r in rows) == [
        ("Oslo", 1), ("Oslo", 1), ("Oslo", 2), ("Oslo", 7), ("Rome", 5),
    ]  # fmt: skip


def test_two_streams_are_joined_within_a_time_and_what_comes_too_late_is_counted(topics, kafka, make_topic, tmp_path):
    orders, payments, joined = make_topic("orders"), make_topic("payments"), []
    # One micro-batch each. What is late is judged by the watermark of the batch before: c's, which b has moved.
    minutes = {"a": 0, "b": 60, "c": 61, "late": 1}
    for name, minute in minutes.items():
        sent_ms = START_MS + minute * MINUTE_MS
        kafka.produce(orders, [name], timestamp_ms=sent_ms)
        kafka.produce(payments, [f"{name} paid"], keys=[name], timestamp_ms=sent_ms + MINUTE_MS // 2)
    pipeline = Pipeline("paid", bootstrap_servers=kafka.bootstrap_servers, checkpoint=str(tmp_path))
    each = {"watermark": ("at", "10 minutes"), "maxOffsetsPerTrigger": 1}
    pipeline.read_topic("orders", orders, value=str, select=["value AS id", "timestamp AS at"], **each)
    pipeline.read_topic(
        "payments", payments, key=str, value=str, select=["key AS id", "value AS text", "timestamp AS at"], **each
    )
    pipeline.sql(
        "paid",
        """
        SELECT orders.id, payments.text FROM orders JOIN payments
        ON orders.id = payments.id AND payments.at BETWEEN orders.at AND orders.at + INTERVAL 5 MINUTES
        """,
    )
    pipeline.write_each("paid", lambda rows, number: joined.extend(tuple(r) for r in rows.collect()))
    with pipeline.start(topics.spark, available_now=True) as running:
        assert running.await_end(timeout_s=200)
        metrics = running.metrics()["paid"]
    assert sorted(joined) == [("a", "a paid"), ("b", "b paid"), ("c", "c paid")]
    assert (metrics.rows, metrics.late_rows) == (8, 2)


def test_results_in_parquet_are_exactly_once_over_a_failure(topics, kafka, make_topic, tmp_path):
    """Spark's file sink and the checkpointed offsets: the batch that failed is repeated, its rows are there once."""
    from pyspark.sql import functions as f

    topic = make_topic(partitions=2)
    for p in range(2):
        kafka.produce(topic, [f"{p}-{i}" for i in range(100)], partition=p)
    fuse, out = tmp_path / "failed-once", str(tmp_path / "out")

    @f.udf("string")
    def fail_once(value):
        if bytes(value) == b"1-70" and not fuse.exists():
            fuse.touch()
            raise RuntimeError("fails once")
        return bytes(value).decode()

    def run():
        frame = topics.stream(topic, maxOffsetsPerTrigger=100, rowsPerTask=50, tasks=2)
        query = topics.start(
            frame.select(fail_once("value").alias("value"))
            .writeStream.format("parquet")
            .option("path", out)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )
        query.awaitTermination(200)

    with pytest.raises(Exception, match="fails once"):
        run()
    run()
    values = [r.value for r in topics.spark.read.parquet(out).collect()]
    assert sorted(values) == sorted(f"{p}-{i}" for p in range(2) for i in range(100))
