"""How Spark reads less: filters that become ranges, budgets in bytes, and shares of a budget under a burst.

    python benchmarks/spark_reading.py [--quick]

- Filters: a batch read of an eighth or less of a topic by `read(where=...)`, and by `where()` of the whole DataFrame.
- Budgets: records of 100 bytes, then of 10,000; how large micro-batches get by a budget of records and of bytes.
- A burst: eight partitions get a micro-batch's records; then one of them gets ten times that at once, and the others a
  few. For each `fairness`: after how many micro-batches the others are read, how fast all is, and what memory it takes.

CPU time is that of the JVM and the Python workers together.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from columnar import broker_process, create_topics, fill
from pyspark.sql import DataFrame, SparkSession
from results import FOLDER, Results
from spark_queries import cpu_s, jvm_pid, peak_mb, run_stream

import ottla.columnar
import ottla.spark

WHOLE = "where() of the DataFrame"
PARTITIONS = 8
SMALL, LARGE = 100, 10_000
BUDGET = 40_000
"""Records of a micro-batch of the burst."""
QUIET = 500
"""Records of each partition that has no burst."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer records")
    parser.add_argument("--results", type=Path, default=FOLDER)
    chosen = parser.parse_args()
    results = Results("spark_reading", chosen.results, is_quick=chosen.quick)
    scratch = Path(tempfile.mkdtemp(prefix="ottla-benchmark-"))
    with broker_process() as servers:
        spark = ottla.spark.session("reading", log_level="OFF")
        filters(results, spark, servers, 200_000 if chosen.quick else 1_000_000, rounds=1 if chosen.quick else 3)
        budgets(results, spark, servers, scratch)
        for fairness in ("maxmin", "proportional"):
            burst(results, spark, servers, scratch, fairness)
        spark.stop()
    results.close()
    shutil.rmtree(scratch, ignore_errors=True)


# --- filters


def filters(results: Results, spark: SparkSession, servers: str, records: int, *, rounds: int) -> None:
    create_topics(servers, "filtered", partitions=PARTITIONS)
    fill(servers, "filtered", partitions=PARTITIONS, records=records)
    late = pa.table({"value": ["late"] * 100, "partition": pa.array([0] * 100, pa.int32())})
    ottla.columnar.write("filtered", late, bootstrap_servers=servers)
    rows = ottla.spark.read(spark, "filtered", bootstrap_servers=servers)
    first_late = rows.where(f"partition = 0 AND offset >= {records // PARTITIONS}").selectExpr("min(timestamp)").first()
    assert first_late is not None
    chosen = {
        "all": "offset >= 0",
        "one partition of eight": "partition = 1",
        "a hundredth of the offsets": f"offset < {records // PARTITIONS // 100}",
        "the newest hundred, by time": f"timestamp >= '{first_late[0].isoformat()}'",
    }
    for what, condition in chosen.items():
        narrowed = ottla.spark.read(spark, "filtered", bootstrap_servers=servers, where=condition)
        frames = (("ottla", narrowed), (WHOLE, rows.where(condition)))
        spent = [[cpu_of(spark, frame) for _, frame in frames] for _ in range(rounds + 1)][1:]
        for number, (name, frame) in enumerate(frames):
            results.add(f"{what}: rows fetched", name, [fetched(frame)], "rows")
            results.add(f"{what}: CPU", name, [each[number] for each in spent], "ms")
        print(f"{what}: {fetched(narrowed):,} rows fetched, CPU ms with and without {spent}", flush=True)


def cpu_of(spark: SparkSession, frame: DataFrame) -> float:
    """Return the milliseconds of CPU that a read takes."""
    before_s = cpu_s(jvm_pid(spark))
    frame.write.format("noop").mode("overwrite").save()
    return (cpu_s(jvm_pid(spark)) - before_s) * 1000


def fetched(frame: DataFrame) -> int:
    """Return the rows that the scan of a frame yields to Spark."""
    plan: Any = frame._jdf.queryExecution().executedPlan()
    plan.resetMetrics()
    frame._jdf.queryExecution().toRdd().count()
    return int(plan.collectLeaves().apply(0).metrics().apply("numOutputRows").value())


# --- budgets


def budgets(results: Results, spark: SparkSession, servers: str, scratch: Path) -> None:
    create_topics(servers, "grows", partitions=1)
    values = ["x" * SMALL] * 200_000 + ["x" * LARGE] * 4_000
    settings = {"compression.type": "none", "batch.size": "100000"}
    ottla.columnar.write("grows", pa.table({"value": values}), bootstrap_servers=servers, settings=settings)
    sizes = np.cumsum([0] + [len(value) for value in values])
    for what, option in (
        ("a budget of 10,000 records", {"maxOffsetsPerTrigger": 10_000}),
        ("a budget of 2 MB", {"maxBytesPerTrigger": "2MB"}),
    ):
        rows = ottla.spark.read_stream(spark, "grows", bootstrap_servers=servers, startingOffsets="earliest", **option)
        ends = [0] + [end_of(batch, "grows")["0"] for batch in progress(rows, scratch / what)]
        taken = [float(sizes[end] - sizes[start]) / 1e6 for start, end in itertools.pairwise(ends)]
        results.add(f"{what}: micro-batches", "ottla", [len(taken)], "batches")
        for name, value in (("smallest", min(taken)), ("median", statistics.median(taken)), ("largest", max(taken))):
            results.add(f"{what}: {name}", "ottla", [value], "MB")
        print(f"{what}: {len(taken)} micro-batches of {min(taken):.2f} to {max(taken):.2f} MB", flush=True)


# --- a burst


def burst(results: Results, spark: SparkSession, servers: str, scratch: Path, fairness: str) -> None:
    topic = f"burst-{fairness}"
    create_topics(servers, topic, partitions=PARTITIONS)
    rows = ottla.spark.read_stream(
        spark,
        topic,
        bootstrap_servers=servers,
        startingOffsets="earliest",
        fairness=fairness,
        maxOffsetsPerTrigger=BUDGET,
    )
    put(servers, topic, [BUDGET // PARTITIONS] * PARTITIONS)
    progress(rows, scratch / topic)
    jvm = jvm_pid(spark)
    before_mb, before_python_mb = heap_mb(spark), peak_mb(jvm, "python")
    put(servers, topic, [10 * BUDGET] + [QUIET] * (PARTITIONS - 1))
    before_s = cpu_s(jvm)
    batches = progress(rows, scratch / topic)
    spent_s = cpu_s(jvm) - before_s
    read = sum(batch["numInputRows"] for batch in batches)
    wanted = BUDGET // PARTITIONS + QUIET
    quiet = [all(end_of(batch, topic)[str(p)] == wanted for p in range(1, PARTITIONS)) for batch in batches]
    seconds = [batch["durationMs"]["triggerExecution"] / 1000 for batch in batches]
    done = quiet.index(True) + 1
    figures = {
        "micro-batches": (len(batches), "batches"),
        "others are read after": (done, "batches"),
        "others wait": (sum(seconds[:done]), "s"),
        "catch-up": (read / sum(seconds) / 1000, "k rows/s"),
        "CPU": (spent_s / read * 1e6, "µs per row"),
        "JVM's heap before": (before_mb, "MB"),
        "JVM's heap after": (heap_mb(spark), "MB"),
        "Python's peak before": (before_python_mb, "MB"),
        "Python's peak after": (peak_mb(jvm, "python"), "MB"),
    }
    for name, (value, unit) in figures.items():
        results.add(f"a burst, {fairness}: {name}", "ottla", [value], unit)
    print(f"a burst, {fairness}: {figures}", flush=True)


def put(servers: str, topic: str, counts: Sequence[int]) -> None:
    partitions = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    table = pa.table({"value": ["x" * SMALL] * len(partitions), "partition": partitions})
    ottla.columnar.write(topic, table, bootstrap_servers=servers)


def progress(frame: DataFrame, checkpoint: Path) -> list[dict[str, Any]]:
    return [batch for batch in run_stream(frame, str(checkpoint)) if batch["numInputRows"]]


def end_of(batch: dict[str, Any], topic: str) -> dict[str, int]:
    """Return the offsets at which a micro-batch ends; progress has them as JSON or as its text."""
    found: Any = batch["sources"][0]["endOffset"]
    offsets: dict[str, dict[str, int]] = json.loads(found) if isinstance(found, str) else found
    return offsets[topic]


def heap_mb(spark: SparkSession) -> float:
    """Return the size of what the JVM's heap holds after a collection."""
    jvm: Any = spark._jvm
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 1e6


if __name__ == "__main__":
    main()
