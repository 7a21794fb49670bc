"""What both benchmarks of Spark do with a session: read topics, and time the micro-batches of a stream.

Rows go to Spark's `noop` sink, which does nothing with them, or on to the topic `out`. `engine` is the format: `ottla`,
or `kafka`, which is Spark's own connector.
"""

from __future__ import annotations

import itertools
import json
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
