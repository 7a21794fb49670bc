"""Looking at a pipeline without running it: its definition, what it would read next, how far it is behind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.records import TopicPartition
from ottla.spark.checkpoints.checkpoint import Checkpoint, is_checkpoint, read_checkpoint
from ottla.spark.checkpoints.offsets import Offsets
from ottla.spark.pipeline.lake_tables import table_place
from ottla.spark.pipeline.parts import (
    BatchDeadLetters,
    DeltaSink,
    EachBatchSink,
    FrameSource,
    LakeSink,
    ParquetSink,
    Sink,
    TableSource,
    TopicSink,
    TopicSource,
    View,
)
from ottla.spark.pipeline.starts import Starts, options_of, wire_of
from ottla.spark.planner import divide
from ottla.spark.reading.subscription import offsets_at, subscribed_partitions
from ottla.spark.reading.trigger_budget import grant
from ottla.wire_client import EARLIEST, LATEST, Cluster, OffsetRange

if TYPE_CHECKING:
    from ottla.spark.pipeline.definition import Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far one partition of one sink is behind."""

    sink: str
    partition: TopicPartition
    position: int
    end: int

    @property
    def records(self) -> int:
        return max(0, self.end - self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRead:
    """What the next micro-batch of one sink reads of one source."""

    sink: str
    source: str
    tasks: tuple[tuple[OffsetRange, ...], ...]
    waiting: int
    """Records that are there, those of this micro-batch included."""

    @property
    def rows(self) -> int:
        return sum(r.size for task in self.tasks for r in task)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The next micro-batches. `str(plan)` is for people."""

    pipeline: str
    version: str
    reads: tuple[PlannedRead, ...]

    def __str__(self) -> str:
        lines = [f"pipeline {self.pipeline} {self.version}: the next micro-batches"]
        for read in self.reads:
            lines.append(
                f"  {read.sink} <- {read.source}: {read.rows:,} of {read.waiting:,} waiting records"
                f" in {len(read.tasks)} task{'' if len(read.tasks) == 1 else 's'}"
            )
            for number, task in enumerate(read.tasks):
                ranges = ", ".join(f"{r.topic}-{r.partition} [{r.start:,}, {r.end:,})" for r in task)
                lines.append(f"    task {number}: {sum(r.size for r in task):,} records: {ranges}")
        return "\n".join(lines)


def plan(pipeline: Pipeline) -> Plan:
    """Return the next micro-batch of each sink, by the checkpoint and the topics as they are.

    A batch in flight, planned and not committed, is the next one as it was planned.
    """
    reads = []
    with Cluster(wire_of(pipeline)) as cluster:
        for sink in pipeline.sinks.values():
            checkpoint = _checkpoint(pipeline, sink)
            for source in pipeline.sources_of(sink):
                begins, ends = _bounds(pipeline, cluster, sink, source, checkpoint)
                options = options_of(pipeline, source, {})
                available = {p: max(0, ends[p] - begins[p]) for p in ends}
                planned, count = _in_flight(checkpoint, ends)
                if planned is None:
                    granted = grant(cluster, options, begins, available, budget=options.max_per_trigger)
                else:
                    granted = {p: max(0, planned.get(p, begins[p]) - begins[p]) for p in ends}
                ranges = [
                    OffsetRange(topic=p.topic, partition=p.partition, start=begins[p], end=begins[p] + granted[p])
                    for p in sorted(ends)
                ]
                tasks = divide(ranges, options.tasks.count(sum(granted.values())) if count is None else count)
                reads.append(
                    PlannedRead(
                        sink=sink.name,
                        source=source.name,
                        tasks=tuple(tuple(task) for task in tasks),
                        waiting=sum(available.values()),
                    )
                )
    return Plan(pipeline=pipeline.name, version=pipeline.version, reads=tuple(reads))


def lag(pipeline: Pipeline) -> list[Lag]:
    """Return how many records each sink is behind, by its checkpoint; a sink that never ran is behind by all it would
    read.
    """
    found = []
    with Cluster(wire_of(pipeline)) as cluster:
        for sink in pipeline.sinks.values():
            checkpoint = _checkpoint(pipeline, sink)
            for source in pipeline.sources_of(sink):
                begins, ends = _bounds(pipeline, cluster, sink, source, checkpoint)
                found += [Lag(sink=sink.name, partition=p, position=begins[p], end=ends[p]) for p in sorted(ends)]
    return found


def describe(pipeline: Pipeline) -> str:
    """Return the definition as text, from sources to sinks."""
    lines = [f"pipeline {pipeline.name} {pipeline.version}, checkpoint {pipeline.home}", "sources"]
    for part in pipeline.parts.values():
        if not isinstance(part, View):
            lines.append(f"  {part.name}: {_source_text(part)}")
    views = [part for part in pipeline.parts.values() if isinstance(part, View)]
    if views:
        lines.append("views")
    for view in views:
        made = f"function {view.function.__name__}" if view.function is not None else "SQL"
        lines.append(f"  {view.name} <- {', '.join(view.inputs)} ({made})")
    lines.append("sinks")
    for sink in pipeline.sinks.values():
        lines.append(f"  {sink.name} <- {sink.view}: {_sink_text(pipeline, sink)}")
        lines.append(f"    checkpoint {pipeline.checkpoint_of(sink.name)}")
        if pipeline.publish_groups:
            lines.append(f"    progress shown as consumer group {pipeline.group_of(sink.name)}")
    return "\n".join(lines)


def _checkpoint(pipeline: Pipeline, sink: Sink) -> Checkpoint | None:
    location = pipeline.checkpoint_of(sink.name)
    return read_checkpoint(location) if is_checkpoint(location) else None


def _in_flight(
    checkpoint: Checkpoint | None, partitions: Iterable[TopicPartition]
) -> tuple[Offsets | None, int | None]:
    """Return the end and the number of tasks of a batch in flight, for the source with these partitions."""
    batch = None if checkpoint is None else checkpoint.unfinished
    if batch is not None:
        topics = {p.topic for p in partitions}
        for offsets, count in zip(batch.sources, batch.tasks, strict=True):
            if offsets and any(p.topic in topics for p in offsets):
                return offsets, count
    return None, None


def _bounds(
    pipeline: Pipeline, cluster: Cluster, sink: Sink, source: TopicSource, checkpoint: Checkpoint | None
) -> tuple[Offsets, Offsets]:
    """Return where the sink continues in each partition, and where the partition ends."""
    options = options_of(pipeline, source, {})
    partitions = subscribed_partitions(cluster, options)
    ends = offsets_at(cluster, partitions, LATEST)
    if checkpoint is not None and checkpoint.committed is not None:
        position = checkpoint.position
    else:
        position = Starts(pipeline, cluster).of(sink, source, keep=False)
    new = [p for p in partitions if p not in position]
    position = position | (offsets_at(cluster, new, EARLIEST) if new else {})
    return position, ends


def _source_text(part: TopicSource | TableSource | FrameSource) -> str:
    if isinstance(part, FrameSource):
        return "a frame"
    if isinstance(part, TableSource):
        return f"topic {part.topic} as a table{', newest record of each key' if part.is_latest_per_key else ''}"
    topics = part.topics if isinstance(part.topics, str) else ", ".join(part.topics or ("by option",))
    text = f"stream of {topics} from {part.start}"
    if part.is_decoded:
        text += f", value {part.value!r}" if part.value is not None else ""
        text += f", key {part.key!r}" if part.key is not None else ""
    if part.watermark is not None:
        text += f", events up to {part.watermark[1]} late by {part.watermark[0]}"
    return text + (f", unique by {', '.join(part.unique)}" if part.unique else "")


def _sink_text(pipeline: Pipeline, sink: Sink) -> str:
    if isinstance(sink, ParquetSink):
        by = f", partitioned by {', '.join(sink.partition_by)}" if sink.partition_by else ""
        return f"Parquet {pipeline.in_version(sink.path)}{by}, exactly once"
    if isinstance(sink, LakeSink):
        by = f", partitioned by {', '.join(sink.partition_by)}" if sink.partition_by else ""
        by += f", by key {', '.join(sink.key)}" if sink.key else ""
        kind = "Delta" if isinstance(sink, DeltaSink) else "Iceberg"
        return f"{kind} table {table_place(pipeline, sink)}{by}, exactly once"
    if isinstance(sink, BatchDeadLetters):
        return f"dead letters to topic {sink.topic}"
    if isinstance(sink, TopicSink):
        delivery = str(sink.options.get("delivery", "at-least-once")).replace("-", " ")
        return f"topic {pipeline.in_version(sink.topic)}, {delivery}"
    assert isinstance(sink, EachBatchSink)
    return f"function {getattr(sink.function, '__qualname__', sink.function)} of each micro-batch"
