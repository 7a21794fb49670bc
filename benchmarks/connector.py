"""Spark reading and writing Kafka through `format("ottla")` and through Spark's own connector, in one session.

    python benchmarks/connector.py [--records 480000] [--partitions 48] [--rounds 3] [--only "to Kafka, Apache"]

The connector must be of Spark's exact version, and not every PySpark has one on Maven Central. So this runs itself in
the environment of `tools/spark_connector.py`, with the newest PySpark that has one: the page says which. A broker runs
in a child process, ours and then Apache Kafka where it can be had; the rounds alternate and the median counts. Before
them each contender runs once uncounted: the first queries of their kind pay for the JVM's compiler. The
connector runs with its defaults, and as a careful user tunes it: more records of each poll, and no wait of half a
second for a fetch that fills up. Goal: ahead on many small partitions, with the defaults of both.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

from results import Results
from spark_queries import Queries, cpu_s, jvm_pid

TOOL = Path(__file__).resolve().parent.parent / "tools" / "spark_connector.py"
THEIRS = "Spark's own connector"
TUNED = f"{THEIRS}, tuned"
CONTENDERS: dict[str, dict[str, object]] = {
    "ottla": {"engine": "ottla"},
    THEIRS: {"engine": "kafka"},
    TUNED: {"engine": "kafka", "kafka.max.poll.records": 50_000, "kafka.fetch.max.wait.ms": 10},
}
SMALL = 500
"""Records of each partition where partitions are small."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--records", type=int, default=480_000)
    options.add_argument("--partitions", type=int, default=48)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", default="", help="a regular expression: measure only rows with such a name")
    options.add_argument("--results", type=Path, help="the folder for connector.jsonl")
    options.add_argument("--jars", help="measure in this Python, with these; not for typing")
    chosen = options.parse_args()
    if chosen.jars:
        measure(chosen)
        return
    found = subprocess.run([sys.executable, str(TOOL), "--jars"], stdout=subprocess.PIPE, text=True)
    if found.returncode == 0:
        python, jars = found.stdout.split()
        again = [python, __file__, *sys.argv[1:], "--jars", jars]
        sys.exit(subprocess.run(again, env=_environment()).returncode)
    results = Results("connector", chosen.results)
    results.problem("many small partitions", THEIRS, "it could not be had from Maven Central")
    results.close()


def _environment() -> dict[str, str]:
    """Without what would lead Spark back to the PySpark of the caller."""
    return {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYSPARK_PYTHON")}


def measure(chosen: argparse.Namespace) -> None:
    from columnar import broker_process
    from servers import Missing, kafka

    import ottla.spark

    results = Results("connector", chosen.results)
    spark = ottla.spark.session("ottla-connector", config={"spark.jars": chosen.jars}, log_level="OFF")
    print(f"PySpark {metadata.version('pyspark')}, {chosen.records:,} records, {chosen.partitions} partitions")
    with broker_process() as servers:
        compare(results, spark, servers, "", chosen)
    try:
        with kafka() as server:
            compare(results, spark, server.bootstrap, ", Apache Kafka", chosen)
    except Missing as reason:
        results.problem("the same on Apache Kafka", THEIRS, str(reason))
    results.close()
    spark.stop()


def compare(results: Results, spark: Any, servers: str, broker: str, chosen: argparse.Namespace) -> None:
    """Let the contenders take turns on one broker, and note their rates and the CPU time of Spark's processes."""
    from columnar import create_topics, fill

    records, partitions = chosen.records, chosen.partitions
    scratch = Path(tempfile.mkdtemp(prefix="ottla-benchmark-"))
    create_topics(servers, "big", "small", "out", partitions=partitions)
    fill(servers, "big", partitions=partitions, records=records)
    fill(servers, "small", partitions=partitions, records=partitions * SMALL)
    queries = Queries(spark, servers, scratch)
    budget = max(records // 4, 1)
    works: dict[str, tuple[int, Callable[..., object]]] = {
        "many small partitions": (partitions * SMALL, lambda **o: queries.batch("small", **o)),
        "batch read": (records, lambda **o: queries.batch("big", **o)),
        f"stream, {budget:,} rows a batch": (
            records,
            lambda **o: queries.stream("big", **o, maxOffsetsPerTrigger=budget),
        ),
        "Kafka to Spark to Kafka": (records, lambda **o: queries.stream("big", **o, sink=o["engine"])),
    }
    works = {what: work for what, work in works.items() if re.search(chosen.only, f"{what}{broker}")}
    for what, (rows, work) in works.items():
        for options in CONTENDERS.values():
            work(**options)
        rates: dict[str, list[float]] = {name: [] for name in CONTENDERS}
        spent: dict[str, list[float]] = {name: [] for name in CONTENDERS}
        for _ in range(chosen.rounds):
            for name, options in CONTENDERS.items():
                before_s, began_s = cpu_s(jvm_pid(spark)), time.perf_counter()
                measured = work(**options)
                seconds = measured if isinstance(measured, float) else time.perf_counter() - began_s
                rates[name].append(rows / seconds / 1e6)
                spent[name].append((cpu_s(jvm_pid(spark)) - before_s) / rows * 1e6)
        for name in CONTENDERS:
            results.add(f"{what}{broker}", name, rates[name], "M records/s")
        for name in CONTENDERS:
            results.add(f"{what}{broker}, CPU", name, spent[name], "µs per record")
        medians = [f"{name} {median(rates[name]):.3f} M/s, {median(spent[name]):.2f} µs" for name in CONTENDERS]
        print(f"{what}{broker}: {'; '.join(medians)}", flush=True)
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
