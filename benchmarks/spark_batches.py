"""What a micro-batch of Spark costs beside its rows: planning, by the number of partitions, and its checkpoint.

    python benchmarks/spark_batches.py            1 to 10,000 partitions, then the checkpoints
    python benchmarks/spark_batches.py --quick    up to 1,000 partitions, fewer micro-batches

Planning is what Spark asks of a source beside the driver, called here in Spark's order, without Spark: the CPU time is
that of this process alone. The checkpoint is on this machine's disk, and on an object store: moto's S3 on this machine,
through S3A, where Maven has its jars. A store that is far away answers later, so requests are counted too.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from columnar import broker_process, create_topics, fill
from results import FOLDER, Results
from spark_queries import cpu_s, jvm_pid, run_stream

import ottla.columnar
import ottla.spark
from ottla.spark.options import source_options
from ottla.spark.reading.source import StreamReader

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "kit"))

POINTS = (1, 10, 100, 1_000, 10_000)
TRIGGERS = 5
"""Micro-batches that are planned; each reads two of the records of each partition."""
TASKS = 10
ROWS = 100
"""Records of a micro-batch whose checkpoint is measured."""
COUNTED = "counted"
"""The bucket before which a proxy counts requests."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=("planning", "checkpoints"), nargs="*", default=["planning", "checkpoints"])
    parser.add_argument("--results", type=Path, default=FOLDER)
    chosen = parser.parse_args()
    results = Results("spark_batches", chosen.results, is_quick=chosen.quick)
    if "planning" in chosen.only:
        for partitions in POINTS[:-1] if chosen.quick else POINTS:
            plan(results, partitions)
    if "checkpoints" in chosen.only:
        checkpoints(results, 10 if chosen.quick else 30)
    results.close()


def plan(results: Results, partitions: int) -> None:
    """Plan micro-batches of a topic, and note the CPU time of each call."""
    spent: dict[str, list[float]] = {}

    def timed(name: str, call: Callable[..., Any], *arguments: object) -> Any:
        began_s = time.process_time()
        answer = call(*arguments)
        spent.setdefault(name, []).append((time.process_time() - began_s) * 1000)
        return answer

    with broker_process() as servers:
        create_topics(servers, "planned", partitions=partitions)
        numbers = np.repeat(np.arange(partitions, dtype=np.int32), 2 * TRIGGERS)
        ottla.columnar.write(
            "planned", pa.table({"value": numbers.astype(str), "partition": numbers}), bootstrap_servers=servers
        )
        options = {
            "kafka.bootstrap.servers": servers,
            "subscribe": "planned",
            "startingOffsets": json.dumps({"planned": dict.fromkeys(map(str, range(partitions)), 0)}),
            "maxOffsetsPerTrigger": str(2 * partitions),
            "tasks": str(TASKS),
            "rowsPerTask": "1",
            "publishGroup": "planned",
        }
        reader = StreamReader(source_options(options, is_streaming=True))
        start = timed("start", reader.initialOffset)
        for _ in range(TRIGGERS):
            end = timed("latestOffset", reader.latestOffset, start, reader.getDefaultReadLimit())
            timed("reportLatestOffset", reader.reportLatestOffset)
            tasks = timed("partitions", reader.partitions, start, end)
            timed("commit", reader.commit, end)
            read = sum(piece.size for task in tasks for piece in task.ranges)
            if read != 2 * partitions:
                raise SystemExit(f"a micro-batch of {partitions} partitions has {read} records")
            start = end
        reader.stop()
    each = [sum(spent[name][trigger] for name in spent if name != "start") for trigger in range(TRIGGERS)]
    row = f"{partitions:,} partition{'s' * (partitions > 1)}"
    for name, values in ({"start": spent.pop("start"), "a micro-batch": each} | spent).items():
        results.add(f"{row}: {name}", "ottla", values, "CPU ms")
    results.add(f"{row}: plan in the checkpoint", "ottla", [len(json.dumps(start)) / 1000], "KB")
    print(f"{row}: { ({name: round(statistics.median(values), 2) for name, values in spent.items()}) }", flush=True)


def checkpoints(results: Results, batches: int) -> None:
    """Run the same small micro-batches with their checkpoint on each storage."""
    from object_store import object_store
    from s3a_jars import Unavailable, s3a_jars
    from store_proxy import store_proxy

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # moto's server, which logs each request
    scratch = Path(tempfile.mkdtemp(prefix="ottla-benchmark-"))
    with broker_process() as servers, object_store() as bucket:
        store = os.environ["AWS_ENDPOINT_URL"]
        with store_proxy() as proxy:
            try:
                jars = s3a_jars(scratch / "jars")
            except Unavailable as reason:
                results.problem("a checkpoint on an object store", "ottla", str(reason))
                jars = []
            config = {
                "spark.jars": ",".join(map(str, jars)),
                "spark.hadoop.fs.s3a.endpoint": store,
                f"spark.hadoop.fs.s3a.bucket.{COUNTED}.endpoint": proxy.endpoint,
                "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
                "spark.hadoop.fs.s3a.path.style.access": "true",
                "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
                "spark.hadoop.fs.s3a.access.key": "testing",
                "spark.hadoop.fs.s3a.secret.key": "testing",
            }
            spark = ottla.spark.session("batches", config=config, log_level="OFF")
            create_topics(servers, "small", partitions=2)
            fill(servers, "small", partitions=2, records=ROWS * batches)
            frame = ottla.spark.read_stream(
                spark, "small", bootstrap_servers=servers, startingOffsets="earliest", maxOffsetsPerTrigger=ROWS
            )
            run_stream(frame, str(scratch / "first"))  # the first query of a session pays for the JVM's compiler
            places = {"disk": str(scratch / "disk")}
            if jars:
                import boto3

                boto3.client("s3", endpoint_url=store).create_bucket(Bucket=COUNTED)
                places |= {"object store": f"{bucket.replace('s3:', 's3a:')}/query", COUNTED: f"s3a://{COUNTED}/query"}
            for place, location in places.items():
                note(results, spark, place, frame, location, batches, lambda: proxy.requests)
            spark.stop()
    shutil.rmtree(scratch, ignore_errors=True)


def note(
    results: Results, spark: Any, place: str, frame: Any, location: str, batches: int, requests: Callable[[], int]
) -> None:
    """Note the time of a query's micro-batches; of the bucket with the proxy, its requests alone."""
    before, before_s = requests(), cpu_s(jvm_pid(spark))
    progress = [each["durationMs"] for each in run_stream(frame, location) if each["numInputRows"]]
    if len(progress) != batches:
        raise SystemExit(f"{place}: {len(progress)} micro-batches, wanted {batches}")
    if place == COUNTED:
        results.add(
            "object store, counted by a proxy: requests", "ottla", [(requests() - before) / batches], "a micro-batch"
        )
        print(f"object store: {(requests() - before) / batches:.1f} requests a micro-batch", flush=True)
        return
    figures = {
        "all of it": [each["triggerExecution"] for each in progress],
        "plan written": [each["walCommit"] for each in progress],
        "commit written": [each["commitOffsets"] for each in progress],
    }
    for name, values in figures.items():
        results.add(f"{place}: {name}", "ottla", values, "ms")
    results.add(f"{place}: CPU", "ottla", [(cpu_s(jvm_pid(spark)) - before_s) / batches * 1000], "ms")
    print(f"{place}: { ({name: statistics.median(values) for name, values in figures.items()}) }", flush=True)


if __name__ == "__main__":
    main()
