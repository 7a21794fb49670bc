"""Measures the cost of state and of bursts in Spark; run by hand: `python benchmarks/spark_state.py [--keys 100000]`.

- State: duplicates dropped and windows counted over many keys; rows a second, state in memory, the checkpoint, and how
  long a restart with 100 more records takes.
- A burst: one partition of eight gets ten times the records of a micro-batch at once; how many micro-batches the
  others' records wait under each `fairness`, and the JVM's heap before and after.

The figures are of one run, on the embedded broker in the same machine. The load is printed beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, window

import ottla.columnar
import ottla.spark
from broker_embedded.cluster import EmbeddedCluster

BUDGET = 8_000
"""Records of a micro-batch of the burst: 1,000 for each partition."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=100_000)
    keys = parser.parse_args().keys
    with EmbeddedCluster() as kafka, tempfile.TemporaryDirectory() as folder:
        spark = ottla.spark.session("state", log_level="OFF")
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
        print("| query | keys | rows/s | state MB | checkpoint MB | restart s |\n|---|---|---|---|---|---|")
        for name in ("dedup", "window"):
            print(_state(spark, kafka, name, keys, Path(folder)))
        print("\n| fairness | micro-batches | quiet partitions done after | JVM heap MB before, after |")
        print("|---|---|---|---|")
        for fairness in ("maxmin", "proportional"):
            print(_burst(spark, kafka, fairness, Path(folder)))
        print(f"\nload {os.getloadavg()[0]:.1f}")
        spark.stop()


def _state(spark: SparkSession, kafka: EmbeddedCluster, name: str, keys: int, folder: Path) -> str:
    topic = f"state-{name}"
    kafka.create_topic(topic, partitions=4)
    _write(kafka, topic, [str(number % keys) for number in range(keys)])
    rows = (
        _rows(spark, kafka, topic)
        .selectExpr("CAST(value AS STRING) AS key", "timestamp")
        .withWatermark("timestamp", "1 hour")
    )
    if name == "dedup":
        query = rows.dropDuplicatesWithinWatermark(["key"])
    else:
        query = rows.groupBy(window(col("timestamp"), "10 minutes"), "key").count()
    checkpoint = folder / topic
    first = _run(query, checkpoint)
    _write(kafka, topic, [str(number) for number in range(100)])
    began = time.perf_counter()
    _run(query, checkpoint)
    restart = time.perf_counter() - began
    took = sum(batch["durationMs"]["triggerExecution"] for batch in first) / 1000
    state = sum(operator["memoryUsedBytes"] for operator in first[-1]["stateOperators"])
    size = sum(file.stat().st_size for file in checkpoint.rglob("*") if file.is_file())
    return f"| {name} | {keys:,} | {keys / took:,.0f} | {state / 1e6:.1f} | {size / 1e6:.1f} | {restart:.1f} |"


def _burst(spark: SparkSession, kafka: EmbeddedCluster, fairness: str, folder: Path) -> str:
    topic = f"burst-{fairness}"
    kafka.create_topic(topic, partitions=8)
    partitions = [0] * (10 * BUDGET) + [partition for partition in range(1, 8) for _ in range(500)]
    _write(kafka, topic, ["x" * 100] * len(partitions), partitions)
    rows = _rows(spark, kafka, topic, fairness=fairness, maxOffsetsPerTrigger=BUDGET)
    before = _heap(spark)
    batches = [batch for batch in _run(rows, folder / topic, sink="noop") if batch["numInputRows"]]
    quiet = [all(_end(batch)[topic][str(partition)] == 500 for partition in range(1, 8)) for batch in batches]
    done = quiet.index(True) + 1
    return f"| {fairness} | {len(batches)} | {done} | {before:.0f}, {_heap(spark):.0f} |"


def _end(batch: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Return the offsets at which a micro-batch ends; progress has them as JSON or as its text."""
    found: Any = batch["sources"][0]["endOffset"]
    return dict(json.loads(found) if isinstance(found, str) else found)


def _write(kafka: EmbeddedCluster, topic: str, values: list[str], partitions: list[int] | None = None) -> None:
    columns: dict[str, Any] = {"value": values}
    if partitions is not None:
        columns["partition"] = pa.array(partitions, pa.int32())
    ottla.columnar.write(topic, pa.table(columns), bootstrap_servers=kafka.bootstrap_servers)


def _rows(spark: SparkSession, kafka: EmbeddedCluster, topic: str, **options: Any) -> DataFrame:
    return ottla.spark.read_stream(
        spark, topic, bootstrap_servers=kafka.bootstrap_servers, startingOffsets="earliest", **options
    )


def _run(query: DataFrame, checkpoint: Path, *, sink: str = "noop") -> list[dict[str, Any]]:
    writer = query.writeStream.format(sink).option("checkpointLocation", str(checkpoint))
    running = writer.trigger(availableNow=True).start()
    running.awaitTermination()
    return [json.loads(progress.json) for progress in running.recentProgress]


def _heap(spark: SparkSession) -> float:
    jvm: Any = spark._jvm
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 1e6


if __name__ == "__main__":
    main()
