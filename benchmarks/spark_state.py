"""What state of Spark queries costs over many keys: time, memory, the checkpoint, and a restart.

    python benchmarks/spark_state.py             0.1 and 1 million keys; some ten minutes
    python benchmarks/spark_state.py --quick     0.1 million
    python benchmarks/spark_state.py --only join --keys 100000

Each key comes once. Duplicates are dropped, records are counted in windows of ten minutes, two topics are joined by key
within ten minutes, and `transformWithState` counts the records of each key in Python. Each query runs in a process of
its own, after a short one that warms the JVM up. The restart is another process, which continues from the checkpoint
with 100 more records. A broker runs beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from columnar import broker_process, create_topics
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import col, expr, window
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from results import FOLDER, Results
from spark_queries import cpu_s, jvm_pid, peak_mb, run_stream

import ottla.columnar
import ottla.spark

PARTITIONS = 4
QUERIES = ("dedup", "window", "join", "transformWithState")
WARM_UP = "warm-up"
RESTARTED = 100
"""Records that come before the restart."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--only", choices=QUERIES, nargs="*", default=list(QUERIES))
    parser.add_argument("--quick", action="store_true", help="0.1 million keys")
    parser.add_argument("--results", type=Path, default=FOLDER)
    parser.add_argument("--step", help="run one query in this process, with these arguments; not for typing")
    chosen = parser.parse_args()
    if chosen.step:
        print(json.dumps(step(**json.loads(chosen.step))))
        return
    results = Results("spark_state", chosen.results, is_quick=chosen.quick)
    for keys in [100_000] if chosen.quick else chosen.keys:
        for query in chosen.only:
            figures = measure(query, keys)
            print(f"{query}, {keys:,} keys: {figures}", flush=True)
            for name, (value, unit) in figures.items():
                results.add(f"{query}, {keys:,} keys: {name}", "ottla", [value], unit)
    results.close()


def measure(query: str, keys: int) -> dict[str, tuple[float, str]]:
    """Return the figures of one query, each with its unit."""
    with broker_process() as servers, tempfile.TemporaryDirectory() as folder:
        topics = ("left", "right")[: 1 + (query == "join")]
        create_topics(servers, *topics, WARM_UP, partitions=PARTITIONS)
        write(servers, WARM_UP, range(1_000))
        for topic in topics:
            write(servers, topic, range(keys))
        arguments = {"query": query, "servers": servers, "checkpoint": f"{folder}/checkpoint"}
        first = in_process(arguments)
        checkpoint = sum(file.stat().st_size for file in Path(folder, "checkpoint").rglob("*") if file.is_file())
        for topic in topics:
            write(servers, topic, range(RESTARTED))
        restarted = in_process(arguments)
    rows = keys * len(topics)
    if (first["rows"], restarted["rows"]) != (rows, RESTARTED * len(topics)):
        raise SystemExit(f"{query} read {first['rows']} and {restarted['rows']} rows")
    return {
        "CPU": (first["cpu_s"] / rows * 1e6, "µs per row"),
        "time": (first["took_s"], "s"),
        "state": (first["state_mb"], "MB"),
        "JVM": (first["java_mb"], "MB"),
        "checkpoint": (checkpoint / 1e6, "MB"),
        "restart": (restarted["took_s"], "s"),
        "CPU of the restart": (restarted["cpu_s"], "s"),
    }


def in_process(arguments: dict[str, str]) -> dict[str, float]:
    command = [sys.executable, __file__, "--step", json.dumps(arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def step(query: str, servers: str, checkpoint: str) -> dict[str, float]:
    """Read all that there is from the checkpoint on."""
    spark = ottla.spark.session("state", log_level="OFF")
    run_stream(queried(spark, servers, query, WARM_UP, WARM_UP), f"{checkpoint}-warm-up-{os.getpid()}")
    frame = queried(spark, servers, query, "left", "right")
    jvm = jvm_pid(spark)
    before_s, began_s = cpu_s(jvm), time.perf_counter()
    batches = run_stream(frame, checkpoint)
    took_s = time.perf_counter() - began_s
    return {
        "rows": sum(batch["numInputRows"] for batch in batches),
        "took_s": took_s,
        "cpu_s": cpu_s(jvm) - before_s,
        "state_mb": sum(operator["memoryUsedBytes"] for operator in batches[-1]["stateOperators"]) / 1e6,
        "java_mb": peak_mb(jvm, "java"),
    }


def queried(spark: SparkSession, servers: str, query: str, left: str, right: str) -> DataFrame:
    def rows(topic: str) -> DataFrame:
        read = ottla.spark.read_stream(spark, topic, bootstrap_servers=servers, startingOffsets="earliest")
        return read.selectExpr("CAST(value AS STRING) AS key", "timestamp AS at").withWatermark("at", "1 hour")

    if query == "dedup":
        return rows(left).dropDuplicatesWithinWatermark(["key"])
    if query == "window":
        return rows(left).groupBy(window(col("at"), "10 minutes"), "key").count()
    if query == "transformWithState":
        return rows(left).groupBy("key").transformWithState(Count(), "key string, n long", "append", "None")
    within = expr("a.key = b.key AND b.at BETWEEN a.at - INTERVAL 10 MINUTES AND a.at + INTERVAL 10 MINUTES")
    return rows(left).alias("a").join(rows(right).alias("b"), within)


class Count(StatefulProcessor):
    """The number of records of each key."""

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        before = self.count.get()[0] if self.count.exists() else 0
        count = before + sum(1 for _ in rows)
        self.count.update((count,))
        yield Row(key=key[0], n=count)

    def close(self) -> None:
        pass


def write(servers: str, topic: str, numbers: range) -> None:
    table = pa.table({"value": [str(number) for number in numbers]})
    ottla.columnar.write(topic, table, bootstrap_servers=servers)


if __name__ == "__main__":
    main()
