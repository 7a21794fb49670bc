"""From parts to frames: plain Spark, the same for a stream and for a bounded batch.

A `Frames` belongs to one run of one sink. It makes each source and view that the sink needs once, on first use, and
nothing else: what you see in `sink.explain()` is what you would have written by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from ottla.errors import ConfigError
from ottla.spark.jvm.registration import register
from ottla.spark.pipeline.parts import (
    BatchDeadLetters,
    FrameSource,
    Sink,
    Source,
    TableSource,
    TopicSink,
    TopicSource,
    View,
)
from ottla.spark.reading.frames import read, read_stream
from ottla.spark.values.dead_letter_rows import dead_letters
from ottla.spark.values.decoding import ERROR_COLUMN, split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Mode(Enum):
    """How a definition runs."""

    STREAM = "stream"
    BATCH = "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameRun:
    """What a run adds to the definition."""

    mode: Mode
    bootstrap_servers: str
    pipeline: str
    source_options: Mapping[str, Mapping[str, str]]
    """By source: where it starts and ends, the group that shows its progress, what pauses it."""


def unique(frame: DataFrame, by: list[str] | tuple[str, ...]) -> DataFrame:
    """Return `frame` without repeats: within the watermark in a stream, over everything in a batch.

    A stream must have a watermark (`withWatermark`): it bounds how long an id is remembered.
    """
    return frame.dropDuplicatesWithinWatermark(list(by)) if frame.isStreaming else frame.dropDuplicates(list(by))


class Frames:
    """The frames of one run, by the names of the definition."""

    def __init__(self, spark: SparkSession, parts: Mapping[str, Source | View], run: FrameRun) -> None:
        register(spark)
        self._spark = spark
        self._parts = parts
        self._run = run
        self._made: dict[str, DataFrame] = {}

    def __getitem__(self, name: str) -> DataFrame:
        if name not in self._made:
            self._made[name] = self._make(self._parts[name])
        return self._made[name]

    def rows_of(self, sink: Sink) -> DataFrame:
        """Return what the sink writes, in the columns that it takes."""
        if isinstance(sink, BatchDeadLetters):
            source = self._parts[sink.view]
            assert isinstance(source, TopicSource)
            _, bad = split(self._load(source, {"includeHeaders": "true"}))
            return dead_letters(bad, pipeline=self._run.pipeline)
        frame = self[sink.view]
        if isinstance(sink, TopicSink):
            key = [] if sink.key is None else [f"CAST({sink.key} AS BINARY) AS key"]
            headers = ["headers"] if "headers" in frame.columns else []
            return frame.selectExpr(*key, f"CAST({sink.value} AS BINARY) AS value", *headers)
        return frame

    def _make(self, part: Source | View) -> DataFrame:
        if isinstance(part, FrameSource):
            return part.make(self._spark)
        if isinstance(part, TableSource):
            return self._table(part)
        if isinstance(part, TopicSource):
            return self._topic(part)
        inputs = {name: self[name] for name in part.inputs if name != "spark"}
        if part.function is not None:
            given: dict[str, Any] = dict(inputs)
            if "spark" in part.inputs:
                given["spark"] = self._spark
            frame = part.function(**given)
            if frame is None:
                raise ConfigError(f"view {part.name}: the function returned None, wanted a DataFrame")
            return frame
        for name, frame in inputs.items():
            frame.createOrReplaceTempView(name)
        assert part.sql is not None
        return self._spark.sql(part.sql)

    def _topic(self, source: TopicSource) -> DataFrame:
        frame = self._load(source, {})
        if source.is_decoded:
            frame, _ = split(_observed(frame, source.name, with_errors=True))
        else:
            frame = _observed(frame, source.name, with_errors=False)
        if source.select:
            frame = frame.selectExpr(*source.select)
        if source.watermark is not None:
            frame = frame.withWatermark(*source.watermark)
        return unique(frame, source.unique) if source.unique else frame

    def _load(self, source: TopicSource, more: Mapping[str, str]) -> DataFrame:
        load = read_stream if self._run.mode is Mode.STREAM else read
        options = {**source.options, **self._run.source_options.get(source.name, {}), **more}
        return load(
            self._spark,
            source.topics,
            bootstrap_servers=self._run.bootstrap_servers,
            value=source.value,
            key=source.key,
            engine=source.engine,
            **options,
        )

    def _table(self, source: TableSource) -> DataFrame:
        from pyspark.sql import functions as f

        frame = read(
            self._spark,
            source.topic,
            bootstrap_servers=self._run.bootstrap_servers,
            value=source.value,
            key=source.key,
            **source.options,
        )
        if source.value is not None or source.key is not None:
            frame, _ = split(frame)
        if source.is_latest_per_key:
            # Records of a key are in one partition, so the highest offset is the newest; a null value deletes the key.
            newest = frame.groupBy("key").agg(f.max_by(f.struct(*frame.columns), "offset").alias("newest"))
            frame = newest.select("newest.*").where("value IS NOT NULL")
        return frame.selectExpr(*source.select) if source.select else frame


def _observed(frame: DataFrame, name: str, *, with_errors: bool) -> DataFrame:
    """Count records, and those that do not decode, on their way: they stand in the progress of each micro-batch."""
    from pyspark.sql import functions as f

    if not frame.isStreaming:
        return frame
    records = f.count(f.lit(1)).alias("records")
    if not with_errors:
        return frame.observe(name, records)
    return frame.observe(name, records, f.count(f.col(ERROR_COLUMN)).alias("malformed"))
