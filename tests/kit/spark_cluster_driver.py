"""The program of a driver: a session on a cluster, and jobs that a test names on its standard input, one a line."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import ottla.spark
from ottla import Json
from ottla.spark import Pipeline


def count(spark: SparkSession, *, servers: str, topic: str) -> list[int]:
    """Read a topic as a batch: its rows, and its tasks."""
    rows = ottla.spark.read(spark, topic, bootstrap_servers=servers)
    return [rows.count(), rows.rdd.getNumPartitions()]


def plain_count(spark: SparkSession, *, servers: str, topic: str) -> int:
    """As `count`, by nothing of Ottla but the format."""
    rows = spark.read.format("ottla").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    return rows.load().count()


def copy(
    spark: SparkSession,
    *,
    servers: str,
    source: str,
    sink: str,
    folder: str,
    gate: str | None = None,
    waits: dict[str, str] | None = None,
    shuffled: int | None = None,
    **options: Any,
) -> int:
    """Copy a topic exactly once, in micro-batches; return their number.

    With `gate`, each attempt of a task writes a line into `begun-<batch>-<task>-<attempt>` there, and waits in the
    middle of its rows: those whose name starts with one of `waits`, until there is the file that it names. With
    `shuffled`, rows go to that many tasks by their value first.
    """
    given = {"maxOffsetsPerTrigger": 40, "tasks": 2, "rowsPerTask": 10, **options}
    rows = ottla.spark.read_stream(
        spark,
        source,
        bootstrap_servers=servers,
        checkpoint=f"{folder}/checkpoint",
        startingOffsets="earliest",
        **{name: value for name, value in given.items() if value is not None},
    ).select("key", "value")
    if shuffled is not None:
        rows = rows.repartition(shuffled, "value")
    if gate is not None:
        rows = rows.mapInArrow(_gated(gate, waits or {}), rows.schema)
    query = (
        rows.writeStream.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", sink)
        .option("delivery", "exactly-once")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    numbers = [int(file.name) for file in Path(folder, "checkpoint", "commits").iterdir() if file.name.isdigit()]
    return max(numbers) + 1


def _gated(gate: str, waits: dict[str, str], *, after: int = 0) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def wait(batches: Iterator[Any]) -> Iterator[Any]:
        import time
        from pathlib import Path

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        batch = context.getLocalProperty("streaming.sql.batchId")
        name = f"begun-{batch}-{context.partitionId()}-{context.attemptNumber()}"
        go = next((file for beginning, file in waits.items() if name.startswith(beginning)), None)
        for number, rows in enumerate(batches):
            if number < after:
                yield rows
                continue
            half = rows.num_rows // 2
            yield rows.slice(0, half)
            with Path(gate, name).open("a") as begun:
                begun.write(f"{context.taskAttemptId()}\n")
            while go is not None and not Path(gate, go).exists():
                time.sleep(0.02)
            yield rows.slice(half)

    return wait


def _pipeline(servers: str, source: str, folder: str) -> Pipeline:
    declared = Pipeline(
        "orders", bootstrap_servers=servers, checkpoint=f"{folder}/checkpoints", dead_letters=f"{source}.dead"
    )
    declared.read_topic("orders", source, value=Json(dict[str, int]), select=["value['n'] AS n"], tasks=2)
    declared.write_topic(
        "orders", f"{source}.out-{{version}}", name="topic", value="CAST(n AS STRING)", delivery="exactly-once"
    )
    declared.write_parquet("orders", f"{folder}/lake-{{version}}", name="lake")
    declared.write_delta("orders", f"{folder}/delta-{{version}}", name="delta")
    return declared


def pipeline(spark: SparkSession, *, servers: str, source: str, folder: str) -> dict[str, Any]:
    """Run a declared pipeline over what there is, replay it as `v2`, and switch over."""
    first = _pipeline(servers, source, folder)
    with first.start(spark, available_now=True) as running:
        running.await_end()
    before = first.live_version()
    again = first.replay(spark, version="v2")
    first.switch_over("v2")
    return {
        "live": [before, first.live_version()],
        "lag": sum(each.records for each in again.lag()),
        "lake": [spark.read.parquet(f"{folder}/lake-{version}").count() for version in ("v1", "v2")],
    }


def tables(
    spark: SparkSession,
    *,
    servers: str,
    source: str,
    folder: str,
    gate: str,
    waits: dict[str, str],
    kinds: Sequence[str] = ("delta", "iceberg"),
    after: int = 0,
    **_: Any,
) -> None:
    """Write a topic into a Delta and an Iceberg table, in micro-batches whose tasks wait as those of `copy`.

    They wait behind this number of Arrow's batches.
    """
    declared = Pipeline("tables", bootstrap_servers=servers, checkpoint=f"{folder}/checkpoints")
    text = ["CAST(value AS STRING) AS value"]
    declared.read_topic("read", source, select=text, maxOffsetsPerTrigger=40, tasks=2, rowsPerTask=10)
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}

    @declared.view
    def gated(read: DataFrame) -> DataFrame:
        return read.mapInArrow(_gated(gate, waits, after=after), read.schema)

    if "delta" in kinds:
        declared.write_delta("gated", f"{folder}/delta", name="delta")
    if "iceberg" in kinds:
        declared.write_iceberg("gated", "lake.rows", catalog=catalog, name="iceberg")
    with declared.start(spark, available_now=True) as running:
        running.await_end()


def udf_pythons(spark: SparkSession) -> list[str]:
    """Return the working folders of Python tasks: those of executors."""

    def where(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"folder": [str(Path.cwd())]})

    found: DataFrame = spark.range(2, numPartitions=2).mapInArrow(where, "folder string")
    return [row.folder for row in found.collect()]


JOBS: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (count, plain_count, copy, pipeline, tables, udf_pythons)
}


def main() -> None:
    master, settings = sys.argv[1], json.loads(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")  # what libraries print must not come between
    os.dup2(2, 1)
    spark = ottla.spark.session("cluster", master=master, config=settings)
    print(json.dumps(["done", master]), file=answers, flush=True)
    for line in sys.stdin:
        job, arguments = json.loads(line)
        try:
            answer = ["done", JOBS[job](spark, **arguments)]
        except Exception:
            answer = ["failed", traceback.format_exc()]
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
