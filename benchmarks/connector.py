"""Spark reading and writing Kafka through `format("ottla")` and through Spark's own connector, in one session.

    python benchmarks/connector.py [--records 480000] [--partitions 48] [--rounds 3]

The connector must be of Spark's exact version, and not every PySpark has one on Maven Central. So this runs itself in
the environment of `tools/spark_connector.py`, with the newest PySpark that has one: the page says which. A broker runs
in a child process; the rounds alternate and the median counts. Goal: ahead on many small partitions, with the defaults
of both.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path

from results import Results
from spark_queries import Queries

TOOL = Path(__file__).resolve().parent.parent / "tools" / "spark_connector.py"
THEIRS = "Spark's own connector"
SMALL = 500
"""Records of each partition where partitions are small."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--records", type=int, default=480_000)
    options.add_argument("--partitions", type=int, default=48)
    options.add_argument("--rounds", type=int, default=3)
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
    from columnar import broker_process, create_topics, fill, report, timed

    import ottla.spark

    results = Results("connector", chosen.results)
    records, partitions, rounds = chosen.records, chosen.partitions, chosen.rounds
    spark = ottla.spark.session("ottla-connector", config={"spark.jars": chosen.jars})
    print(f"PySpark {metadata.version('pyspark')}, {records:,} records of 100 bytes, {partitions} partitions")
    scratch = Path(tempfile.mkdtemp(prefix="ottla-benchmark-"))
    with broker_process() as servers:
        create_topics(servers, "big", "small", "out", partitions=partitions)
        fill(servers, "big", partitions=partitions, records=records)
        fill(servers, "small", partitions=partitions, records=partitions * SMALL)
        queries = Queries(spark, servers, scratch)

        def both(query: Callable[..., object], topic: str, **more: object) -> list[list[float]]:
            return timed(rounds, *(partial(query, topic, engine=engine, **more) for engine in ("ottla", "kafka")))

        for topic in ("small", "big"):  # the first queries of a session pay for the JVM's compiler
            for engine in ("ottla", "kafka"):
                queries.batch(topic, engine=engine)
        ours, theirs = both(queries.batch, "small")
        report(results, "many small partitions", partitions * SMALL, ours, THEIRS, theirs, 1)
        ours, theirs = both(queries.batch, "big")
        report(results, "batch read", records, ours, THEIRS, theirs, None)
        budget = max(records // 4, 1)
        ours, theirs = both(queries.stream, "big", maxOffsetsPerTrigger=budget)
        report(results, f"stream, {budget:,} rows a batch", records, ours, THEIRS, theirs, None)
        ours, theirs = timed(
            rounds, *(partial(queries.stream, "big", engine=each, sink=each) for each in ("ottla", "kafka"))
        )
        report(results, "Kafka to Spark to Kafka", records, ours, THEIRS, theirs, None)
    results.close()
    spark.stop()
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
