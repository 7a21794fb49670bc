"""Where the sources of each sink start: decided once, for all sinks together, and kept beside each checkpoint.

With one decision, two sinks of one stream see the same records even with `start="latest"`, and a restart before the
first commit cannot skip any. Beside a checkpoint that is no local folder (`s3a://`, `gs://`, HDFS) Spark keeps it, with
whatever file systems and rights it has.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.errors import ConfigError
from ottla.spark.checkpoints.files import is_local
from ottla.spark.checkpoints.offsets import Offsets, to_json_dict
from ottla.spark.checkpoints.start_offsets import persisted_start, read_start
from ottla.spark.options import SourceOptions, source_options
from ottla.spark.pipeline.parts import Position, Sink, TopicSource, start_options
from ottla.spark.reading.subscription import resolve_start, subscribed_partitions
from ottla.wire_client import Cluster, WireSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.spark.pipeline.definition import Pipeline


def options_of(pipeline: Pipeline, source: TopicSource, start: dict[str, str]) -> SourceOptions:
    """Return the source's options as the source itself will read them."""
    given = {name: str(v).lower() if isinstance(v, bool) else str(v) for name, v in source.options.items()}
    if source.topics is not None:
        given["subscribe"] = source.topics if isinstance(source.topics, str) else ",".join(source.topics)
    return source_options(given | start | {"kafka.bootstrap.servers": pipeline.bootstrap_servers}, is_streaming=True)


def wire_of(pipeline: Pipeline) -> WireSettings:
    """Return what connects to the pipeline's cluster: the options of its first stream."""
    return options_of(pipeline, pipeline.streams()[0], {}).wire


def start_kept_by_spark(
    spark: SparkSession, location: str, resolve: Callable[[], Offsets], *, keep: bool = True
) -> Offsets:
    """As `persisted_start`, as a text file of Spark's: a folder with one line. Without the line it was not finished."""
    from pyspark.errors import AnalysisException

    try:
        lines = [row.value for row in spark.read.text(location).collect()]
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        lines = []
    if len(lines) > 1:
        raise ConfigError(f"{location}: found {len(lines)} lines, wanted one with starting offsets; remove it")
    if lines:
        return read_start(lines[0], location)
    offsets = resolve()
    if keep:
        line = spark.createDataFrame([(json.dumps(to_json_dict(offsets)),)], "value string")
        line.coalesce(1).write.mode("overwrite").text(location)
    return offsets


class Starts:
    """Resolves and keeps starting offsets. One per start of a pipeline."""

    def __init__(
        self,
        pipeline: Pipeline,
        cluster: Cluster,
        *,
        since: Position | None = None,
        spark: SparkSession | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._cluster = cluster
        self._since = since
        self._resolved: dict[str, Offsets] = {}

    def of(self, sink: Sink, source: TopicSource, *, keep: bool) -> Offsets:
        """Return the first offsets of this source in this sink's query. `keep`: write them beside the checkpoint if
        new."""
        folder = self._pipeline.checkpoint_of(sink.name)
        location = f"{folder}/ottla-starting-offsets-{source.name}.json"
        if is_local(folder):
            return persisted_start(location, lambda: self._resolve(source), keep=keep)
        if self._spark is None:
            return self._resolve(source)
        return start_kept_by_spark(self._spark, location, lambda: self._resolve(source), keep=keep)

    def option(self, sink: Sink, source: TopicSource) -> dict[str, str]:
        """Return the same, as the source's option, kept."""
        return {"startingOffsets": json.dumps(to_json_dict(self.of(sink, source, keep=True)))}

    def _resolve(self, source: TopicSource) -> Offsets:
        if source.name not in self._resolved:
            position = source.start if self._since is None else self._since
            options = options_of(self._pipeline, source, start_options(position))
            partitions = subscribed_partitions(self._cluster, options)
            self._resolved[source.name] = resolve_start(self._cluster, options, partitions)
        return self._resolved[source.name]
