"""A pipeline as one bounded batch: everything between two positions, into outputs of its own.

The end is decided once, before the first sink runs, so that all sinks see the same records.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.errors import ConfigError
from ottla.spark.checkpoints.offsets import Offsets, to_json_dict
from ottla.spark.jvm.spark_session import session
from ottla.spark.options import source_options
from ottla.spark.pipeline.frames import FrameRun, Frames, Mode
from ottla.spark.pipeline.lake_tables import table_place, table_writer
from ottla.spark.pipeline.parts import (
    BatchDeadLetters,
    EachBatchSink,
    LakeSink,
    ParquetSink,
    Position,
    Sink,
    TopicSink,
    TopicSource,
    end_options,
    start_options,
)
from ottla.spark.pipeline.starts import options_of
from ottla.spark.reading.subscription import resolve_end, resolve_start, subscribed_partitions
from ottla.wire_client import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.spark.pipeline.definition import Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What a batch read and where it wrote."""

    starts: Offsets
    ends: Offsets
    outputs: dict[str, str]

    @property
    def records(self) -> int:
        return sum(max(0, end - self.starts.get(p, end)) for p, end in self.ends.items())


def run_batch(
    pipeline: Pipeline, spark: SparkSession | None, *, since: Position, until: Position, only: Sequence[str]
) -> BatchReport:
    """Run each sink once. Dead letters are left to the stream: they were written when the records first came."""
    sinks = [s for s in pipeline.sinks.values() if not isinstance(s, BatchDeadLetters) and (not only or s.name in only)]
    unknown = [name for name in only if name not in pipeline.sinks]
    if unknown or not sinks:
        raise ConfigError(f"pipeline {pipeline.name}: no sink {', '.join(unknown)}; it has {', '.join(pipeline.sinks)}")
    starts, ends, options = _bounds(pipeline, sinks, since, until)
    run = FrameRun(
        mode=Mode.BATCH,
        bootstrap_servers=pipeline.bootstrap_servers,
        pipeline=pipeline.name,
        source_options=options,
    )
    frames = Frames(spark or session(pipeline.name), pipeline.parts, run)
    outputs = {sink.name: _write(pipeline, sink, frames.rows_of(sink)) for sink in sinks}
    return BatchReport(starts=starts, ends=ends, outputs=outputs)


def _bounds(
    pipeline: Pipeline, sinks: list[Sink], since: Position, until: Position
) -> tuple[Offsets, Offsets, dict[str, dict[str, str]]]:
    sources = {source.name: source for sink in sinks for source in pipeline.sources_of(sink)}
    starts: Offsets = {}
    ends: Offsets = {}
    options: dict[str, dict[str, str]] = {}
    for source in sources.values():
        start, end = _resolve(pipeline, source, since, until)
        end = {p: max(end[p], start[p]) for p in end}  # a time before the start: nothing, not an error
        starts, ends = starts | start, ends | end
        options[source.name] = {
            "startingOffsets": json.dumps(to_json_dict(start)),
            "endingOffsets": json.dumps(to_json_dict(end)),
        }
    return starts, ends, options


def _resolve(pipeline: Pipeline, source: TopicSource, since: Position, until: Position) -> tuple[Offsets, Offsets]:
    begins = options_of(pipeline, source, start_options(since))
    text = {"subscribe": "_", "kafka.bootstrap.servers": pipeline.bootstrap_servers} | end_options(until)
    bounded = source_options(text, is_streaming=False)
    with Cluster(begins.wire) as cluster:
        partitions = subscribed_partitions(cluster, begins)
        return resolve_start(cluster, begins, partitions), resolve_end(cluster, bounded, partitions)


def _write(pipeline: Pipeline, sink: Sink, rows: Any) -> str:
    if isinstance(sink, EachBatchSink):
        sink.function(rows, -1)
        return getattr(sink.function, "__qualname__", repr(sink.function))
    if isinstance(sink, LakeSink):
        table_writer(pipeline, sink)(rows, -1)
        return table_place(pipeline, sink)
    if isinstance(sink, ParquetSink):
        path = pipeline.in_version(sink.path)
        if sink.files_per_batch is not None:
            rows = rows.coalesce(sink.files_per_batch)
        writer = rows.write.mode("errorifexists")
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)
        writer.parquet(path)
        return path
    assert isinstance(sink, TopicSink)
    topic = pipeline.in_version(sink.topic)
    writer = rows.write.format("ottla").option("kafka.bootstrap.servers", pipeline.bootstrap_servers)
    for name, value in sink.options.items():
        writer = writer.option(name, str(value))
    writer.option("topic", topic).mode("append").save()
    return topic
