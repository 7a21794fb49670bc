"""Exactly once, by killing: workers, the driver between any two of its steps, and whole processes with SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

import ottla.columnar
from ottla.spark.java import find_java, java_home
from ottla.spark.worker_python import worker_python

pyspark = pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]

PARTITIONS = 2


def fill(kafka, topic, rows):
    for p in range(PARTITIONS):
        kafka.produce(topic, [f"{p}-{i}" for i in range(rows)], partition=p)
    return sorted(f"{p}-{i}" for p in range(PARTITIONS) for i in range(rows))


def in_topic(kafka, topic):
    table = ottla.columnar.read(topic, bootstrap_servers=kafka.bootstrap_servers, columns=("value",)).read_all()
    return sorted(v.decode() for v in table.column("value").to_pylist())


def in_parquet(spark, path):
    return sorted(r.value for r in spark.read.parquet(str(path)).selectExpr("CAST(value AS STRING) AS value").collect())


def test_a_worker_that_is_killed_leaves_no_row_out_and_none_twice(topics, kafka, make_topic, tmp_path):
    """SIGKILL in the middle of a task: its transaction stays open, its sibling's input ends truncated."""
    source, sink = make_topic("in", partitions=PARTITIONS), make_topic("out", partitions=2)
    rows, fuse = fill(kafka, source, 2_000), tmp_path / "killed-once"

    def kill_once(batches):
        for batch in batches:
            if b"1-1500" in batch.column("value").to_pylist() and not fuse.exists():
                fuse.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    frame = topics.stream(source, rowsPerTask=1_000, tasks=4).select("value").mapInArrow(kill_once, "value binary")
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        topics.run(frame, topic=sink, delivery="exactly-once")
    topics.run(frame, topic=sink, delivery="exactly-once")
    assert in_topic(kafka, sink) == rows


def test_a_driver_that_dies_between_any_two_steps_repeats_nothing(topics, kafka, make_topic, tmp_path):
    """What is on disk after a death at each step, made by taking away what would have come after it."""
    source, sink, out = make_topic("in", partitions=PARTITIONS), make_topic("out"), tmp_path / "out"
    rows = fill(kafka, source, 100)
    frame = topics.stream(source, maxOffsetsPerTrigger=100, tasks=2, rowsPerTask=10).select("value")

    def to_topic():
        topics.run(frame, topic=sink, delivery="exactly-once", checkpoint="to-topic")

    def to_parquet():
        query = topics.start(
            frame.writeStream.format("parquet")
            .option("path", str(out))
            .option("checkpointLocation", str(tmp_path / "to-parquet"))
            .trigger(availableNow=True)
        )
        query.awaitTermination(200)

    def forget(log: Path):
        (log / "1").unlink()
        (log / ".1.crc").unlink(missing_ok=True)

    to_topic()
    to_parquet()
    forget(tmp_path / "to-topic" / "commits")  # the transactions were committed, the batch was not
    to_topic()
    assert in_topic(kafka, sink) == rows

    commits, planned, written = (
        tmp_path / "to-parquet" / "commits",
        tmp_path / "to-parquet" / "offsets",
        out / "_spark_metadata",
    )
    for steps in ([commits], [commits, written], [commits, written, planned]):
        for log in steps:
            forget(log)
        to_parquet()
        assert in_parquet(topics.spark, out) == rows


PROGRAM = """
import sys
from ottla.spark import Pipeline, session

def declare(source, sink, folder, servers):
    pipeline = Pipeline("crash", bootstrap_servers=servers, checkpoint=f"{folder}/checkpoints")
    pipeline.read_topic("events", source, select=["value"], maxOffsetsPerTrigger=200, tasks=2, rowsPerTask=50)
    pipeline.write_parquet("events", f"{folder}/out", name="lake")
    pipeline.write_topic("events", sink, name="topic", value="value", delivery="exactly-once")
    return pipeline

if __name__ == "__main__":
    declare(*sys.argv[1:]).run(session("crash"))
"""

# The JVM is spark-submit's, and so are the settings that it starts with.
SUBMIT = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def submit(program, arguments, output):
    """`spark-submit program.py`, with the one that pip installed; a process group of its own."""
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]
    for name, value in SUBMIT.items():
        command += ["--conf", f"{name}={value}"]
    environment = os.environ | {
        "JAVA_HOME": str(java_home(find_java())),
        "PYSPARK_PYTHON": worker_python(),
        "PYSPARK_DRIVER_PYTHON": worker_python(),
    }
    command += [str(program), *arguments]
    return subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)


@pytest.mark.timeout(600)  # starts a second Spark in a process of its own
def test_processes_killed_with_sigkill_leave_exactly_once_results(spark, kafka, make_topic, tmp_path):
    """The pipeline runs by spark-submit, is killed, and goes on in another session."""
    source, sink = make_topic("in", partitions=PARTITIONS), make_topic("out", partitions=2)
    rows = fill(kafka, source, 400)
    program, log = tmp_path / "program.py", tmp_path / "log"
    program.write_text(PROGRAM)
    arguments = [source, sink, str(tmp_path), kafka.bootstrap_servers]
    home = tmp_path / "checkpoints" / "crash" / "v1"
    # One query has a batch in its sink that Spark does not know of yet, the other one is somewhere in its second batch.
    awaited = [tmp_path / "out" / "_spark_metadata" / "1", home / "topic" / "offsets" / "1"]
    with log.open("w") as output:
        started = submit(program, arguments, output)
    try:
        deadline = time.monotonic() + 300
        while not all(file.exists() for file in awaited) and started.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        assert started.poll() is None, log.read_text()
        assert all(file.exists() for file in awaited), log.read_text()
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)  # the driver and its JVM; the workers die of it
        started.wait()

    program_again: dict[str, object] = {"__name__": "program"}
    exec(PROGRAM, program_again)
    with program_again["declare"](*arguments).start(spark, available_now=True) as running:
        assert running.await_end(timeout_s=300)
    assert in_parquet(spark, tmp_path / "out") == rows
    assert in_topic(kafka, sink) == rows
