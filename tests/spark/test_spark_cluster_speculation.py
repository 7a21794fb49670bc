"""Attempts of a task that run beside each other (`spark.speculation`): topics and tables have each row once."""

from __future__ import annotations

import json

import pytest
from spark_cluster import until

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "500ms",
}
ROW_BY_ROW = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1", "spark.buffer.size": "64"}
"""Spark hands each row on from one Python function of a task to the next, as it does with many rows."""


def test_a_speculative_copy_that_runs_beside_the_first_attempt(cluster, copied):
    """The first attempt waits until its copy has begun, and wins: nothing fences it, so nothing is tried again."""
    speculating = cluster.only_driver(**SPECULATION)
    speculating.begin("copy", **copied.gated("begun-1-1-0", **{"begun-1-1-1": "over"}))
    copied.begun("1-1-0")
    copied.begun("1-1-1")
    copied.go()
    copied.begun("2-0-0")
    (copied.gate / "over").touch()
    speculating.end()
    assert [name for name in copied.attempts if name.startswith("begun-1-1-")] == ["begun-1-1-0", "begun-1-1-1"]
    assert copied.is_exact


@pytest.mark.parametrize("winner", [0, 1])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_the_files_of_one_attempt_of_a_task_are_in_the_table_when_a_speculative_copy_writes_too(
    cluster, copied, kind, winner
):
    """Both attempts wait in the middle of their files. The loser goes on when all batches are committed."""
    events = copied.folder / "events"
    events.mkdir()
    speculating = cluster.only_driver(**SPECULATION, **ROW_BY_ROW, **_event_log(events))
    waits = {f"begun-1-1-{winner}": "go", f"begun-1-1-{1 - winner}": "over"}
    speculating.begin("tables", **copied.gated(**waits), kinds=[kind], after=10)
    written = [
        until(lambda name=name: copied.files(kind, f"1/{name}-*"), lambda: copied.files(kind))
        for name in ("1-0", "1-1")
    ]
    assert [len(files) for files in written] == [1, 1]
    copied.go()
    speculating.end()
    (copied.gate / "over").touch()
    assert [name for name in copied.attempts if name.startswith("begun-1-1-")] == ["begun-1-1-0", "begun-1-1-1"]
    assert copied.table_is_exact(kind)
    assert copied.files(kind, f"1/1-{winner}-*") == written[winner]
    assert _attempts(events, batch=1, task=1) == [(0, False), (1, True)]


def _event_log(folder):
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{folder}",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


def _attempts(folder, batch, task):
    """Return the attempts of a task that Spark started, by its events: their numbers, and whether they are copies."""
    (log,) = folder.iterdir()
    whole, _, _ = log.read_text().rpartition("\n")  # Spark may be in the middle of the last line
    events = [json.loads(line) for line in whole.splitlines()]
    stages = [
        event["Stage Info"]["Stage ID"]
        for event in events
        if event["Event"] == "SparkListenerStageSubmitted"
        and event["Properties"]["streaming.sql.batchId"] == str(batch)
    ]
    started = [event for event in events if event["Event"] == "SparkListenerTaskStart" and event["Stage ID"] in stages]
    infos = [event["Task Info"] for event in started if event["Task Info"]["Index"] == task]
    return [(info["Attempt"], info["Speculative"]) for info in infos]
