"""What a cluster of processes costs: a standalone master with two executors of one core, beside `local[2]`.

    python benchmarks/spark_executors.py [--records 480000] [--partitions 48] [--rounds 3]

All of it runs on one machine and its cores, so this is the cost of processes of their own, without a network. Both
drivers are processes too, and take turns. CPU time is that of drivers, executors and their Python workers. Rows go to
Spark's `noop` sink.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from columnar import broker_process, create_topics, fill
from results import FOLDER, Results
from spark_queries import Queries, cpu_s

import ottla.spark

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "kit"))

SMALL = 40
"""Micro-batches of 1,000 rows, of which the median counts."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=480_000)
    parser.add_argument("--partitions", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=FOLDER)
    parser.add_argument("--master", help="serve jobs of this driver on standard input; not for typing")
    parser.add_argument("--servers", help="the brokers of such a driver")
    chosen = parser.parse_args()
    if chosen.master:
        serve(chosen)
        return
    results = Results("spark_cluster", chosen.results)
    measure(results, chosen)
    results.close()


def measure(results: Results, chosen: argparse.Namespace) -> None:
    from spark_cluster import SparkCluster  # of the tests: master and workers

    folder = Path(tempfile.mkdtemp(prefix="ottla-benchmark-"))
    with broker_process() as servers, contextlib.ExitStack() as stack:
        create_topics(servers, "big", "small", partitions=chosen.partitions)
        fill(servers, "big", partitions=chosen.partitions, records=chosen.records)
        fill(servers, "small", partitions=chosen.partitions, records=SMALL * 1_000)
        cluster = SparkCluster(folder)
        stack.callback(cluster.close)
        masters = {"local[2]": "local[2]", "two executors": cluster.url}
        drivers = {name: stack.enter_context(driver(chosen, url, servers)) for name, url in masters.items()}
        for what, job in JOBS.items():
            rows = {"small": SMALL * 1_000}.get(job[0], chosen.records)
            pids = {name: [process.pid] for name, process in drivers.items()}
            pids["two executors"] += [each.process.pid for each in (cluster.master, *cluster.workers)]
            spent: dict[str, list[tuple[float, float]]] = {name: [] for name in drivers}
            for _ in range(chosen.rounds + 1):
                for name, process in drivers.items():
                    before_s = cpu_s(*pids[name])
                    seconds = ask(process, what)
                    spent[name].append((seconds, cpu_s(*pids[name]) - before_s))
            for name, runs in spent.items():
                kept = runs[1:]  # the first pays for the JVM's compiler
                per_batch = SMALL if job[0] == "small" else 1
                results.add(f"{what}: time", name, [seconds / per_batch for seconds, _ in kept], "s")
                results.add(f"{what}: CPU", name, [cpu / rows * 1e6 for _, cpu in kept], "µs per row")
            seen = {name: [(round(s, 2), round(cpu, 2)) for s, cpu in runs[1:]] for name, runs in spent.items()}
            print(f"{what}: seconds and CPU seconds {seen}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)


JOBS: dict[str, tuple[str, str, dict[str, int]]] = {
    "batch read, planned tasks": ("big", "batch", {}),
    "batch read, 48 tasks": ("big", "batch", {"minPartitions": 48}),
    "stream of 8 micro-batches": ("big", "stream", {"maxOffsetsPerTrigger": 8}),
    "a micro-batch of 1,000 rows": ("small", "stream", {"maxOffsetsPerTrigger": SMALL}),
}
"""Topic, kind and options of each job; a budget is given as the number of micro-batches."""


@contextlib.contextmanager
def driver(chosen: argparse.Namespace, master: str, servers: str) -> Iterator[Any]:
    command = [sys.executable, __file__, "--master", master, "--servers", servers, "--records", str(chosen.records)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # its session is there
        yield process
    finally:
        process.communicate()


def ask(process: Any, what: str) -> float:
    process.stdin.write(f"{what}\n")
    process.stdin.flush()
    return float(json.loads(process.stdout.readline()))


def serve(chosen: argparse.Namespace) -> None:
    """Run the jobs that are named on standard input, and answer with the seconds of each."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = ottla.spark.session(
        "cluster", master=chosen.master, config={"spark.executor.memory": "512m"}, log_level="OFF"
    )
    scratch = Path(tempfile.mkdtemp(prefix="ottla-benchmark-"))
    queries = Queries(spark, chosen.servers, scratch)
    print(json.dumps(spark.sparkContext.master), file=answers, flush=True)
    for line in sys.stdin:
        topic, kind, options = JOBS[line.strip()]
        rows = SMALL * 1_000 if topic == "small" else chosen.records
        given = {name: rows // n if name == "maxOffsetsPerTrigger" else n for name, n in options.items()}
        began_s = time.perf_counter()
        told = queries.batch(topic, **given) if kind == "batch" else queries.stream(topic, **given)
        print(json.dumps(time.perf_counter() - began_s if told is None else told), file=answers, flush=True)
    spark.stop()
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
