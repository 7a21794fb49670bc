"""Pipelines in processes of their own: one under spark-submit is killed, `ottla pipeline run` is stopped by Ctrl-C."""

from __future__ import annotations

import signal
import time

import pytest
from spark_processes import WAIT_S

import ottla.columnar
from ottla.spark.checkpoint import read_checkpoint

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


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

    with submitted.declared_here().start(spark, available_now=True) as running:
        assert running.await_end(timeout_s=WAIT_S)
    in_files = spark.read.parquet(str(out)).selectExpr("CAST(value AS STRING) AS value").collect()
    assert sorted(row.value for row in in_files) == submitted.rows
    written = ottla.columnar.read(submitted.sink, bootstrap_servers=kafka.bootstrap_servers, columns=("value",))
    assert sorted(v.decode() for v in written.read_all().column("value").to_pylist()) == submitted.rows


def test_ctrl_c_lets_the_running_batch_end_and_commit_and_leaves_no_process(processes):
    """`ottla pipeline run` in a terminal: the signal reaches the JVM and all Python processes of the group too."""
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
    found = read_checkpoint(str(folder / "checkpoints" / "service" / "v1" / "events"))
    assert (found.committed.number, found.unfinished) == (1, None)
    assert "KeyboardInterrupt" not in service.log.read_text()
