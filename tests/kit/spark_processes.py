"""Pipelines in processes of their own, for the tests that kill and stop them (`test_spark_processes.py`).

Starting a JVM and its first query takes most of the time. So both processes are started before the first test of Spark
and used by the last ones: each waits in front of the step at which something happens to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ottla.testing import Kafka

PARTITIONS = 2
WAIT_S = 300

# On a session that is the user's own, with none of the settings of `ottla.spark.session`.
SUBMITTED = """
import sys, time
from pathlib import Path
from ottla.spark import Pipeline
from pyspark.sql import SparkSession

def declare(source, sink, folder, servers):
    pipeline = Pipeline("crash", bootstrap_servers=servers, checkpoint=f"{folder}/checkpoints")
    pipeline.read_topic("events", source, select=["value"], maxOffsetsPerTrigger=200, tasks=2, rowsPerTask=50)
    pipeline.write_parquet("events", f"{folder}/out", name="lake")
    pipeline.write_topic("events", sink, name="topic", value="value", delivery="exactly-once")
    return pipeline

def interrupted(source, folder, servers):
    pipeline = Pipeline("interrupted", bootstrap_servers=servers, checkpoint=f"{folder}/checkpoints")
    pipeline.read_topic("events", source, select=["value"], maxOffsetsPerTrigger=100)
    pipeline.write_each("events", waits_in_its_second_batch(folder))
    return pipeline

def waits_in_its_second_batch(folder):
    def each(rows, number):
        Path(folder, f"begun-{number}").touch()
        while number == 1 and not Path(folder, "go").exists():
            time.sleep(0.05)
        Path(folder, f"ended-{number}-{rows.count()}").touch()  # read by a worker, after Ctrl-C
    return each

if __name__ == "__main__":
    source, _, folder, servers = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    interrupted(source, folder, servers).run(spark)
    declare(*sys.argv[1:]).run(spark, every="1 second")
"""

SERVICE = """
import json, os, time
from pathlib import Path
from ottla.spark import Pipeline

source, folder, servers = json.loads(os.environ["SERVICE"])
pipeline = Pipeline("service", bootstrap_servers=servers, checkpoint=f"{folder}/checkpoints")
pipeline.read_topic("events", source, select=["value"], maxOffsetsPerTrigger=100)

def wait_for_go(batches):
    for batch in batches:
        if "0-60" in batch.column("value").to_pylist():
            Path(folder, "begun-1").touch()  # a worker, in the middle of a task when Ctrl-C comes
            while not Path(folder, "go").exists():
                time.sleep(0.05)
        yield batch

@pipeline.view
def slowly(events):
    return events.selectExpr("CAST(value AS STRING) AS value").mapInArrow(wait_for_go, "value string")

def each(rows, number):
    Path(folder, f"ended-{number}-{rows.count()}").touch()

pipeline.write_each("slowly", each)
"""

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM for a short life: its second compiler and parallel collectors cost more than they give."""

QUICK = {
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.authenticate.socketTimeout": "120s",
}


class Started:
    """A command in a session of its own, as a terminal would start it."""

    def __init__(self, command: Sequence[str | Path], log: Path, **environment: str) -> None:
        self.log = log
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdout=output,
                stderr=output,
                env=os.environ | environment,
                start_new_session=True,
            )

    def wait(self, reached: Callable[[], object]) -> None:
        """Until something is there; the process must live that long."""
        deadline = time.monotonic() + WAIT_S
        while not reached():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.002)

    def signal(self, number: int) -> None:
        """To all of its process group, as a terminal sends Ctrl-C."""
        os.killpg(self.process.pid, number)

    @property
    def has_processes(self) -> bool:
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self.process.wait()


class Submitted(Started):
    """spark-submit of a program with two pipelines: the first waits in its second micro-batch for the file `go`.

    When that one is stopped by Ctrl-C the other one starts. It has two sinks, one in files and one in a topic, exactly
    once, reads what is there, and waits for more.
    """

    def __init__(self, kafka: Kafka, folder: Path) -> None:
        import pyspark

        self.kafka, self.folder = kafka, folder
        self.source = kafka.create_topic(kafka.fresh_name("submitted-in"), partitions=PARTITIONS)
        self.sink = kafka.create_topic(kafka.fresh_name("submitted-out"), partitions=2)
        self.rows = fill(kafka, self.source, range(100))
        self.arguments = [self.source, self.sink, str(folder), kafka.bootstrap_servers]
        (folder / "program.py").write_text(SUBMITTED)
        command: list[str | Path] = [Path(pyspark.__file__).parent / "bin" / "spark-submit", "--master", "local[2]"]
        for name, value in QUICK.items():
            command += ["--conf", f"{name}={value}"]
        super().__init__([*command, folder / "program.py", *self.arguments], folder / "log", **environment())

    def more_rows(self) -> None:
        """Three micro-batches more."""
        self.rows = sorted([*self.rows, *fill(self.kafka, self.source, range(100, 400))])

    def declared_here(self) -> Any:
        """The same pipeline in this process."""
        program: dict[str, Any] = {"__name__": "program"}
        exec(SUBMITTED, program)
        return program["declare"](*self.arguments)


class Service(Started):
    """`ottla pipeline run`. In its second micro-batch a worker waits for the file `go`."""

    def __init__(self, kafka: Kafka, folder: Path) -> None:
        self.folder = folder
        source = kafka.create_topic(kafka.fresh_name("service-in"), partitions=PARTITIONS)
        fill(kafka, source, range(200))
        (folder / "its_service.py").write_text(SERVICE)
        ottla = Path(sys.executable).parent / "ottla"
        command: list[str | Path] = [ottla, "pipeline", "run", "its_service:pipeline", "--master", "local[2]"]
        for name, value in QUICK.items():
            command += ["--set", f"{name}={value}"]
        more = {
            "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
            "SERVICE": json.dumps([source, str(folder), kafka.bootstrap_servers]),
        }
        super().__init__(command, folder / "log", **environment(), **more)


def environment() -> dict[str, str]:
    from ottla.spark.jvm.class_archive import archive_options, class_archive
    from ottla.spark.jvm.java import find_java, java_home
    from ottla.spark.jvm.spark_session import worker_python

    java, python = find_java(), worker_python()
    found = {"JAVA_HOME": str(java_home(java)), "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    archive = class_archive(java)
    return found if archive is None else found | {"SPARK_SUBMIT_OPTS": archive_options(archive)}


def fill(kafka: Kafka, topic: str, numbers: Iterable[int]) -> list[str]:
    for p in range(PARTITIONS):
        kafka.produce(topic, [f"{p}-{i}" for i in numbers], partition=p)
    return sorted(f"{p}-{i}" for p in range(PARTITIONS) for i in numbers)
