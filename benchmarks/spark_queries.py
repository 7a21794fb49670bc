"""What the benchmarks of Spark do with a session: read topics, and time the micro-batches of a stream.

Rows go to Spark's `noop` sink, which does nothing with them, or on to the topic `out`. `engine` is the format: `ottla`,
or `kafka`, which is Spark's own connector.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from pathlib import Path
from typing import Any


class Queries:
    """Queries of one session on one broker; each stream has a checkpoint of its own under `scratch`."""

    def __init__(self, spark: Any, servers: str, scratch: Path) -> None:
        self._spark = spark
        self._servers = servers
        self._scratch = scratch
        self._streams = itertools.count()

    def batch(self, topic: str, *, engine: str = "ottla", **options: object) -> None:
        """Read all of a topic."""
        frame = self._load(self._spark.read, topic, engine, options)
        frame.write.format("noop").mode("overwrite").save()

    def stream(self, topic: str, *, engine: str = "ottla", sink: str = "noop", **options: object) -> float:
        """Seconds that the micro-batches took; starting and stopping a query costs about one more."""
        frame = self._load(self._spark.readStream, topic, engine, {"startingOffsets": "earliest"} | options)
        query = (
            (frame if sink == "noop" else frame.select("key", "value"))
            .writeStream.format(sink)
            .option("kafka.bootstrap.servers", self._servers)
            .option("topic", "out")
            .option("checkpointLocation", str(self._scratch / str(next(self._streams))))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        batches = [json.loads(progress.json) for progress in query.recentProgress]
        return sum(batch["durationMs"]["triggerExecution"] for batch in batches if batch["numInputRows"]) / 1000

    def _load(self, reader: Any, topic: str, engine: str, options: dict[str, object]) -> Any:
        for name, value in {"kafka.bootstrap.servers": self._servers, "subscribe": topic, **options}.items():
            reader = reader.option(name, value)
        return reader.format(engine).load()


def run_stream(frame: Any, checkpoint: str, sink: str = "noop") -> list[dict[str, Any]]:
    """Run a query until it has read all that there is. Return the progress of its micro-batches."""
    running = frame.writeStream.format(sink).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    running.awaitTermination()
    return [json.loads(progress.json) for progress in running.recentProgress]


def jvm_pid(spark: Any) -> int:
    """Return the process of a session's JVM; the Python workers are below it."""
    return int(spark.sparkContext._gateway.proc.pid)


def cpu_s(*pids: int) -> float:
    """Return the CPU time of processes, and of all that they started."""
    stats = [stat for pid in pids for stat in _tree(pid).values()]
    # User and system, its own and of its children that have ended.
    return sum(sum(map(int, stat[11:15])) for stat in stats) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int, name: str) -> float:
    """Return the largest resident memory that a process of this name, here or below, has had; of those that run."""
    peaks = [0.0]
    for each in _tree(pid):
        status = dict(line.split(":", 1) for line in Path(f"/proc/{each}/status").read_text().splitlines())
        if status["Name"].strip().startswith(name):
            peaks.append(int(status["VmHWM"].split()[0]) / 1000)
    return max(peaks)


def _tree(root: int) -> dict[int, list[str]]:
    """Return the fields of `/proc/<pid>/stat` behind the name, of a process and of all below it."""
    stats = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            stats[int(file.parent.name)] = file.read_text().rpartition(")")[2].split()
    tree = [root]
    for pid in tree:
        tree += [child for child, stat in stats.items() if int(stat[1]) == pid]
    return {pid: stats[pid] for pid in tree}
