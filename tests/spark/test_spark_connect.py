"""Everything also works through Spark Connect: source, sink, decoding, exactly once, declared pipelines.

What runs on the server are the data source, the sink and the user's functions. The server is started by the client,
with none of the settings of `ottla.spark.session`. Without the packages of Connect this is skipped;
`tools/run spark-oldest` has them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyspark
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


COPY = """
import sys, time
from pathlib import Path

from pyspark.sql import SparkSession

import ottla.spark

remote, source, sink, servers, folder = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", 1)

def waits_in_its_second_batch(batches):
    from pyspark import TaskContext
    second = TaskContext.get().getLocalProperty("streaming.sql.batchId") == "1"
    for rows in batches:
        yield rows.slice(0, rows.num_rows // 2)
        if second:
            Path(folder, "begun").touch()
            while not Path(folder, "go").exists():
                time.sleep(0.02)
        yield rows.slice(rows.num_rows // 2)

rows = ottla.spark.read_stream(
    spark, source, bootstrap_servers=servers, startingOffsets="earliest",
    maxOffsetsPerTrigger=20, tasks=2, rowsPerTask=5,
).select("value")
query = (
    rows.mapInArrow(waits_in_its_second_batch, "value binary").writeStream.format("ottla")
    .option("kafka.bootstrap.servers", servers).option("topic", sink).option("delivery", "exactly-once")
    .option("checkpointLocation", f"{folder}/copy").trigger(availableNow=True).start()
)
query.awaitTermination(200)
assert query.exception() is None, query.exception()
"""


@contextlib.contextmanager
def connect_server(environment, port, log):
    """A server of its own, killed at the end."""
    home = Path(pyspark.__file__).parent
    command = [f"{home}/bin/spark-submit", "--master", "local[2]", "--conf", f"spark.connect.grpc.binding.port={port}"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    named = environment | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("a") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, env=named, start_new_session=True)
    try:
        _until(lambda: _listens(port) or server.poll() is not None, log)
        assert server.poll() is None, log.read_text()[-3_000:]
        yield
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _until(reached, log):
    deadline = time.monotonic() + 180
    while not reached():
        assert time.monotonic() < deadline, log.read_text()[-3_000:]
        time.sleep(0.05)


def test_a_server_that_is_killed_in_the_middle_of_a_batch_and_started_again_copies_exactly_once(
    kafka, make_topic, tmp_path, environment
):
    source, sink = make_topic("in", partitions=2), make_topic("out", partitions=2)
    values = sorted(f"{partition}-{i}".encode() for partition in range(2) for i in range(30))
    for partition in range(2):
        kafka.produce(source, [value for value in values if value.startswith(b"%d" % partition)], partition=partition)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    program, log = tmp_path / "copies.py", tmp_path / "server.log"
    program.write_text(COPY)
    remote = f"sc://127.0.0.1:{port}"
    arguments = [sys.executable, str(program), remote, source, sink, kafka.bootstrap_servers, str(tmp_path)]
    with connect_server(environment, port, log):
        with (tmp_path / "client.log").open("w") as output:
            client = subprocess.Popen(arguments, stdout=output, stderr=output, env=environment)
        try:
            _until(lambda: (tmp_path / "begun").exists() or client.poll() is not None, tmp_path / "client.log")
            assert client.poll() is None, (tmp_path / "client.log").read_text()[-3_000:]
        except BaseException:
            client.kill()
            raise
    client.kill()  # it would ask for the server for more than a minute
    client.wait()
    (tmp_path / "go").touch()
    with connect_server(environment, port, log):
        ran = subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=False, env=environment)
        assert ran.returncode == 0, ran.stdout[-1_000:] + ran.stderr[-3_000:]

    def copied():
        table = ottla.columnar.read(sink, bootstrap_servers=kafka.bootstrap_servers, columns=("value",)).read_all()
        return sorted(table.column("value").to_pylist())

    _until(lambda: len(copied()) >= len(values), log)
    assert copied() == values
