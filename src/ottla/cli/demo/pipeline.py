"""The demo's streaming job: flights joined with the weather of their hour, mean delay per carrier and hour.

A process of its own, controlled by stdin (`go` when the weather is in its topic, `finish` when the last flight is)
and reporting on stdout, one JSON object per line. Plain Spark: two streaming queries over the source `ottla`.

Both sinks may see a micro-batch twice after a failure. The topic is keyed by carrier and hour, so a repeat changes
nothing; the Parquet folder of a batch is overwritten by its repeat.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla import spark as ottla_spark
from ottla.cli.demo.model import (
    DELAYS_TOPIC,
    FLIGHTS_TOPIC,
    PIPELINE_DEAD_LETTER_TOPIC,
    PIPELINE_GROUP,
    WEATHER_TOPIC,
    Flight,
    Weather,
)
from ottla.cli.demo.traces import BatchSpans
from ottla.serdes import Avro, Json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

HOUR_MS = 3_600_000

_SHORT_JOB = {
    "spark.sql.shuffle.partitions": 2,
    # A job of half a minute never earns back what the optimizing compiler costs: this halves the JVM's CPU time.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


_saying = threading.Lock()


def say(**fields: object) -> None:
    """Print one line of progress. Spark calls sinks in threads of its own."""
    with _saying:
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()


def run(bootstrap_servers: str, folder: Path) -> None:
    """Run the whole job, from the session to the final Parquet table."""
    spark = ottla_spark.session("ottla-demo", master="local[2]", config=_SHORT_JOB)
    say(stage="starting", note="waits for the weather")
    _wait_for("go")
    say(stage="starting", note="reads the weather")
    source = {"kafka.bootstrap.servers": bootstrap_servers, "startingOffsets": "earliest", "includeHeaders": "true"}
    weather = _weather(spark, source)
    flights = spark.readStream.format("ottla").options(**source, subscribe=FLIGHTS_TOPIC).load()
    good, bad = ottla_spark.split(ottla_spark.decode(flights, value=Avro(Flight)))

    queries = [
        _start_means(good, weather, bootstrap_servers, folder),
        _start_dead_letters(bad, bootstrap_servers, folder),
    ]
    say(stage="starting", note="compiles the queries")
    try:
        finished = threading.Event()
        threading.Thread(target=_finish_on_request, args=(finished,), name="demo-stdin", daemon=True).start()
        rows_of_batch: dict[int, int] = {}
        while not finished.wait(0.3):
            _report(queries, rows_of_batch)
        for query in queries:
            query.processAllAvailable()
            _report(queries, rows_of_batch)
    finally:
        for query in queries:
            query.stop()
    say(stage="table", note="writes the final table")
    _write_table(spark, folder)
    say(stage="done")
    spark.stop()


def _weather(spark: SparkSession, source: dict[str, str]) -> DataFrame:
    """Return the current weather topic, one row per airport and hour."""
    from pyspark.sql import functions as f

    observations = spark.read.format("ottla").options(**source, subscribe=WEATHER_TOPIC).load()
    good, _bad = ottla_spark.split(ottla_spark.decode(observations, value=Json(Weather)))
    columns = good.select("value.*").dropDuplicates(["origin", "hour_ms"])
    return f.broadcast(columns.select("origin", "hour_ms", "wind_speed", "visib").cache())


def _start_means(good: DataFrame, weather: DataFrame, bootstrap_servers: str, folder: Path) -> StreamingQuery:
    """Start the mean delay per carrier and hour, kept up to date: each micro-batch writes the rows that it changed."""
    from pyspark.sql import functions as f

    departures = ottla_spark.with_trace_context(good).select("value.*", "trace_context").where("dep_delay is not null")
    departures = departures.withColumn("hour_ms", f.col("scheduled_ms") - f.col("scheduled_ms") % HOUR_MS)
    means = (
        departures.join(weather, ["origin", "hour_ms"], "left")
        .groupBy("carrier", "hour_ms")
        .agg(
            f.avg("dep_delay").alias("mean_delay"),
            f.count("*").alias("flights"),
            f.avg("wind_speed").alias("wind_speed"),
            f.avg("visib").alias("visib"),
            f.collect_set(f.when(f.col("trace_context.is_sampled"), f.col("trace_context"))).alias("traces"),
        )
        .withColumn("hour", f.timestamp_millis("hour_ms"))
    )

    spans = BatchSpans(lambda span: say(span=span))

    def write(changed: DataFrame, batch_id: int) -> None:
        begun_ns = time.time_ns()
        kept = changed.persist()
        traces = kept.select(f.explode("traces").alias("trace")).select("trace.trace_id", "trace.span_id").collect()
        changed = kept.drop("traces")
        changed.write.mode("overwrite").parquet(str(folder / "changes" / f"batch={batch_id}"))
        records = changed.select(
            f.concat_ws("|", "carrier", f.col("hour_ms").cast("string")).cast("binary").alias("key"),
            f.to_json(f.struct("carrier", "hour_ms", "mean_delay", "flights")).cast("binary").alias("value"),
        )
        options = {"kafka.bootstrap.servers": bootstrap_servers, "topic": DELAYS_TOPIC}
        records.write.format("ottla").options(**options).mode("append").save()
        kept.unpersist()
        spans.print_new(traces, batch_id, begun_ns=begun_ns)

    return (
        means.writeStream.queryName("means")
        .outputMode("update")
        .foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoints" / "means"))
        .trigger(processingTime="500 milliseconds")
        .start()
    )


def _start_dead_letters(bad: DataFrame, bootstrap_servers: str, folder: Path) -> StreamingQuery:
    return (
        ottla_spark.dead_letters(bad, pipeline=PIPELINE_GROUP)
        .writeStream.queryName("dead letters")
        .format("ottla")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("topic", PIPELINE_DEAD_LETTER_TOPIC)
        .option("checkpointLocation", str(folder / "checkpoints" / "dead-letters"))
        .trigger(processingTime="1 second")
        .start()
    )


def _write_table(spark: SparkSession, folder: Path) -> None:
    """Write the final table: for each carrier and hour, the row that the newest batch wrote."""
    from pyspark.sql import functions as f

    changes = spark.read.parquet(str(folder / "changes"))
    newest = changes.groupBy("carrier", "hour_ms").agg(
        f.max_by(f.struct(*(c for c in changes.columns if c not in ("carrier", "hour_ms", "batch"))), "batch").alias(
            "row"
        )
    )
    table = newest.select("carrier", "hour_ms", "row.*").orderBy("hour_ms", "carrier").coalesce(1)
    table.write.mode("overwrite").parquet(str(folder / "mean_delay.parquet"))


def _report(queries: list[Any], rows_of_batch: dict[int, int]) -> None:
    for query in queries:
        error = query.exception()
        if error is not None:
            raise error
    # Spark keeps the newest hundred only, and repeats a batch's id while it is idle.
    for progress in queries[0].recentProgress:
        if progress["numInputRows"]:
            rows_of_batch[progress["batchId"]] = progress["numInputRows"]
    if rows_of_batch:
        say(stage="running", rows=sum(rows_of_batch.values()), note=f"micro-batches: {len(rows_of_batch)}")


def _wait_for(word: str) -> None:
    """Read stdin up to this line. End of input means that the demo is gone, and so is the reason to go on."""
    for line in sys.stdin:
        if line.strip() == word:
            return
    raise EOFError(f"stdin ended before the line {word!r}")


def _finish_on_request(finished: threading.Event) -> None:
    try:
        _wait_for("finish")
    except EOFError:
        os.kill(os.getpid(), signal.SIGTERM)
    finished.set()


if __name__ == "__main__":
    started_s = time.monotonic()
    run(sys.argv[1], Path(sys.argv[2]))
    say(stage="ended", seconds=round(time.monotonic() - started_s, 2))
