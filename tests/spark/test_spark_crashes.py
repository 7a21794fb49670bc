"""Exactly once, by killing workers, and the driver between any two of its steps.

Whole processes are killed in `test_spark_processes.py`, brokers in `test_spark_exactly_once_brokers.py`.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

import ottla.columnar
from ottla.admin import Admin

pytest.importorskip("pyspark")

from ottla.spark.checkpoints.offsets import TASKS, tasks_of

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]

PARTITIONS = 2


def fill(kafka, topic, rows):
    for p in range(PARTITIONS):
        kafka.produce(topic, [f"{p}-{i}" for i in range(rows)], partition=p)
    return sorted(f"{p}-{i}" for p in range(PARTITIONS) for i in range(rows))


def in_topic(kafka, topic):
    table = ottla.columnar.read(topic, bootstrap_servers=kafka.bootstrap_servers, columns=("value",)).read_all()
    return sorted(v.decode() for v in table.column("value").to_pylist())


def until_in_topic(kafka, topic, count):
    """What a reader of committed records sees, as soon as there are so many: partitions know of a commit a moment
    after its coordinator."""
    deadline = time.monotonic() + 60
    while len(found := in_topic(kafka, topic)) < count:
        assert time.monotonic() < deadline, f"{len(found)} rows of {count}"
        time.sleep(0.02)
    return found


def markers_of(kafka, checkpoint):
    """The batch, plus one, that each task has committed: offsets of groups that are named after the query."""
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        return {task: next(iter(admin.group_lag(f"ottla-{query}-{task}")[0].partitions)).committed for task in range(3)}


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


def committed_in_part(topics, kafka, source, sink):
    """Stop a query when two of the three tasks of batch 1 have committed; return how it is started with other tasks."""

    def to_topic(tasks):
        frame = topics.stream(source, maxOffsetsPerTrigger=100, tasks=tasks, rowsPerTask=10).select("value")
        topics.run(frame, topic=sink, delivery="exactly-once")

    def is_of_second_task(request):
        return request.transactional_id.endswith("-1")

    refused = {"api": "END_TXN", "error": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"}
    with (
        kafka.cluster.faults.add(**refused, when=is_of_second_task, skip=1),
        pytest.raises(Exception, match="AUTHORIZATION"),
    ):
        to_topic(3)
    assert markers_of(kafka, topics.tmp_path / "checkpoint") == {0: 2, 1: 1, 2: 2}
    return to_topic


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_a_batch_that_was_committed_in_part_is_repeated_by_its_own_tasks(topics, kafka, make_topic, tasks):
    """The query starts again with another number, by which later batches are divided."""
    source, sink = make_topic("in", partitions=PARTITIONS), make_topic("out")
    rows = fill(kafka, source, 150)
    committed_in_part(topics, kafka, source, sink)(tasks)
    assert until_in_topic(kafka, sink, len(rows)) == rows
    ends = [json.loads((topics.tmp_path / f"checkpoint/offsets/{n}").read_text().splitlines()[2]) for n in range(3)]
    assert [tasks_of(end) for end in ends] == [3, 3, tasks]


def test_a_batch_whose_checkpoint_has_no_number_of_tasks_is_completed_by_the_option(topics, kafka, make_topic):
    """The error names the number, and what to do with it."""
    source, sink = make_topic("in", partitions=PARTITIONS), make_topic("out")
    rows = fill(kafka, source, 150)
    to_topic = committed_in_part(topics, kafka, source, sink)
    for planned in (topics.tmp_path / f"checkpoint/offsets/{n}" for n in range(2)):
        lines = planned.read_text().splitlines()
        end = json.loads(lines[2])
        assert end.pop(TASKS) == 3
        planned.write_text("\n".join([*lines[:2], json.dumps(end, separators=(",", ":"))]))
        planned.with_name(f".{planned.name}.crc").unlink(missing_ok=True)
    with pytest.raises(Exception, match=r"partly committed by 3 tasks and is now written by 2.*the option tasks=3"):
        to_topic(2)
    to_topic(3)
    assert until_in_topic(kafka, sink, len(rows)) == rows


def test_a_driver_that_dies_between_any_two_steps_repeats_nothing(topics, kafka, make_topic, tmp_path):
    """What is on disk after a death at each step, made by taking away what would have come after it."""
    source, sink, out = make_topic("in", partitions=PARTITIONS), make_topic("out"), tmp_path / "out"
    rows = fill(kafka, source, 100)

    def read(tasks):
        return topics.stream(source, maxOffsetsPerTrigger=100, tasks=tasks, rowsPerTask=10).select("value")

    frame = read(2)

    def to_topic(tasks=2, **options):
        topics.run(read(tasks), topic=sink, delivery="exactly-once", checkpoint="to-topic", **options)

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
    for tasks in (2, 3):
        forget(tmp_path / "to-topic" / "commits")  # the transactions were committed, the batch was not
        to_topic(tasks)
        assert in_topic(kafka, sink) == rows
    forget(tmp_path / "to-topic" / "commits")
    with pytest.raises(Exception, match="transactionalIdPrefix: found 'other', wanted 'ottla'"):
        to_topic(transactionalIdPrefix="other")

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
