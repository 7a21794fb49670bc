"""Pipelines in processes of their own, by spark-submit and `ottla pipeline run`: two Ctrl-C, and a SIGKILL."""

from __future__ import annotations

import signal
import time

import pytest
from spark_processes import WAIT_S

import ottla.columnar
from ottla.spark.checkpoints.checkpoint import read_checkpoint

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def test_ctrl_c_under_spark_submit_lets_the_running_batch_end_and_the_program_goes_on(processes):
    """There the JVM comes first: Ctrl-C would end it, and its queries with it. The program then runs another one."""
    submitted, _ = processes
    folder = submitted.folder
    submitted.wait((folder / "begun-1").exists)
    submitted.signal(signal.SIGINT)
    submitted.wait(lambda: "pipeline_stopping" in submitted.log.read_text())
    (folder / "go").touch()
    submitted.wait(lambda: "pipeline_stopped" in submitted.log.read_text())
    assert sorted(file.name for file in folder.glob("ended-*")) == ["ended-0-100", "ended-1-100"]
    found = read_checkpoint(str(folder / "checkpoints" / "interrupted" / "v1" / "events"))
    assert (found.committed.number, found.unfinished) == (1, None)


def test_ctrl_c_lets_the_running_batch_end_and_commit_and_leaves_no_process(processes):
    """`ottla pipeline run` in a terminal: the signal reaches the JVM and all Python processes of the group too.

    One of them is a worker in the middle of a task.
    """
    _, service = processes
    folder = service.folder
    service.wait((folder / "begun-1").exists)
    service.signal(signal.SIGINT)
    service.wait(lambda: "pipeline_stopping" in service.log.read_text())
    (folder / "go").touch()
    assert service.process.wait(WAIT_S) == 0, service.log.read_text()
    deadline = time.monotonic() + 60
    while service.has_processes:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert sorted(file.name for file in folder.glob("ended-*")) == ["ended-0-100", "ended-1-100"]
    found = read_checkpoint(str(folder / "checkpoints" / "service" / "v1" / "slowly"))
    assert (found.committed.number, found.unfinished) == (1, None)
    assert "KeyboardInterrupt" not in service.log.read_text()


def test_a_process_killed_with_sigkill_leaves_exactly_once_results(processes, spark, kafka):
    """The pipeline runs by spark-submit on a session that is the user's own, is killed, and goes on in another one."""
    submitted, _ = processes
    out, home = submitted.folder / "out", submitted.folder / "checkpoints" / "crash" / "v1"
    submitted.wait(lambda: all((home / sink / "commits" / "0").exists() for sink in ("lake", "topic")))
    submitted.more_rows()
    # One query has a batch in its sink that Spark does not know of yet, the other one is somewhere in its second batch.
    awaited = [out / "_spark_metadata" / "1", home / "topic" / "offsets" / "1"]
    submitted.wait(lambda: all(file.exists() for file in awaited))
    submitted.end()  # the driver and its JVM; the workers die of it
    deadline = time.monotonic() + 60
    while submitted.has_processes:  # the JVM comes first, and the driver has the locks until it is dead too
        assert time.monotonic() < deadline
        time.sleep(0.02)

    with submitted.declared_here().start(spark, available_now=True) as running:
        assert running.await_end(timeout_s=WAIT_S)
    in_files = spark.read.parquet(str(out)).selectExpr("CAST(value AS STRING) AS value").collect()
    assert sorted(row.value for row in in_files) == submitted.rows
    written = ottla.columnar.read(submitted.sink, bootstrap_servers=kafka.bootstrap_servers, columns=("value",))
    assert sorted(v.decode() for v in written.read_all().column("value").to_pylist()) == submitted.rows
