"""Everything also works through Spark Connect: source, sink, decoding, exactly once, declared pipelines.

What runs on the server are the data source, the sink and the user's functions. The server is started by the client,
with none of the settings of `ottla.spark.session`. Without the packages of Connect this is skipped;
`tools/run spark-oldest` has them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import ottla.columnar
from ottla.serdes import Avro, SerdeContext
from ottla.spark import JavaMissing, find_java
from ottla.spark.jvm.java import java_home
from ottla.spark.jvm.spark_session import worker_python

for _needed in ("grpc", "grpc_status", "zstandard", "google.rpc", "pandas"):
    pytest.importorskip(_needed, reason="needs pip install 'pyspark[connect]' (`tools/run spark-oldest` has it)")

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

PROGRAM = """
import dataclasses, json, os, sys
from pathlib import Path

from pyspark.sql import SparkSession

import ottla.spark
from ottla import Avro, Json
from ottla.spark import Pipeline

source, sink, servers, folder = sys.argv[1:]

@dataclasses.dataclass
class Sale:
    shop: str
    amount: int

found = {}
spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", 1).getOrCreate()
found["is remote"] = "connect" in type(spark).__module__
found["session"] = ottla.spark.session("another") is spark

# A batch, decoded in the source and behind it.
inside = ottla.spark.read(spark, source, bootstrap_servers=servers, value=Avro(Sale), engine="auto")
good, bad = ottla.spark.split(inside)
found["totals"] = {r.shop: r.total for r in good.groupBy("value.shop").agg({"value.amount": "sum"})
                   .toDF("shop", "total").collect()}
found["bad"] = [r._error.kind for r in bad.collect()]
plain = ottla.spark.read(spark, source, bootstrap_servers=servers)
found["behind"] = ottla.spark.split(ottla.spark.decode(plain, value=Avro(Sale)))[0].count()

# Exactly once: a stream in several batches, and its last batch again as after a crash of the driver.
def through():
    query = (
        ottla.spark.read_stream(spark, source, bootstrap_servers=servers, checkpoint=f"{folder}/through",
                                startingOffsets="earliest", maxOffsetsPerTrigger=40)
        .select("key", "value").writeStream.format("ottla")
        .option("kafka.bootstrap.servers", servers).option("topic", sink).option("delivery", "exactly-once")
        .option("checkpointLocation", f"{folder}/through").trigger(availableNow=True).start()
    )
    query.awaitTermination(200)
    found["failed"] = str(query.exception() or "")

through()
commits = Path(folder, "through", "commits")
last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
(commits / str(last)).unlink()
(commits / f".{last}.crc").unlink(missing_ok=True)
through()
found["batches"] = last + 1

# A declared pipeline: files, a function of each batch, dead letters.
pipeline = Pipeline("sales", bootstrap_servers=servers, checkpoint=f"{folder}/checkpoints", dead_letters=sink + ".dead")
pipeline.read_topic("sales", source, value=Avro(Sale), select=["value.*"])
pipeline.write_parquet("sales", f"{folder}/lake")
with pipeline.start(spark, available_now=True) as running:
    found["ended"] = running.await_end(timeout_s=200)
    found["rows"] = running.metrics()["sales"].rows
    found["lag"] = sum(row.records for row in running.lag())
found["lake"] = spark.read.parquet(f"{folder}/lake").count()
print("FOUND " + json.dumps(found))
"""


@pytest.fixture
def environment():
    try:
        java = find_java()
    except JavaMissing as error:
        pytest.skip(f"needs Java: {error}")
    return os.environ | {"JAVA_HOME": str(java_home(java)), "PYSPARK_PYTHON": worker_python()}


def test_reading_decoding_exactly_once_and_pipelines_work_through_spark_connect(
    kafka, make_topic, tmp_path, environment
):
    from dataclasses import make_dataclass

    source, sink = make_topic("in", partitions=2), make_topic("out", partitions=2)
    kafka.create_topic(f"{sink}.dead")
    sale = make_dataclass("Sale", [("shop", str), ("amount", int)])
    serde, context = Avro(sale), SerdeContext("sales")
    values = [serde.serialize(sale(f"shop {i % 2}", i), context) for i in range(100)] + [b"\x01"]
    for partition in range(2):
        kafka.produce(source, values[partition::2], partition=partition)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    arguments = [sys.executable, str(program), source, sink, kafka.bootstrap_servers, str(tmp_path)]
    ran = subprocess.run(arguments, capture_output=True, text=True, timeout=500, check=False, env=environment)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, ran.stdout[-2_000:] + ran.stderr[-4_000:]
    found = json.loads(lines[0].removeprefix("FOUND "))
    assert (found["is remote"], found["session"], found["failed"]) == (True, True, "")
    assert found["totals"] == {"shop 0": sum(range(0, 100, 2)), "shop 1": sum(range(1, 100, 2))}
    assert (found["bad"], found["behind"]) == (["malformed"], 100)
    assert found["batches"] >= 3
    written = ottla.columnar.read(sink, bootstrap_servers=kafka.bootstrap_servers, columns=("value",)).read_all()
    assert sorted(written.column("value").to_pylist()) == sorted(values)
    assert (found["ended"], found["rows"], found["lag"], found["lake"]) == (True, 101, 0, 100)
    dead = ottla.columnar.read(f"{sink}.dead", bootstrap_servers=kafka.bootstrap_servers, columns=("value",)).read_all()
    assert dead.column("value").to_pylist() == [b"\x01"]
