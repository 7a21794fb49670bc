"""Starting the queries of a pipeline: one for each sink, all or none, each locked against a second one.

Also what runs them in the foreground until a signal comes.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from ottla.amounts import DURATIONS, parse_duration_ms
from ottla.errors import ConfigError
from ottla.spark.checkpoints.checkpoint import is_checkpoint, query_locks
from ottla.spark.checkpoints.files import files_of, is_local
from ottla.spark.jvm.spark_session import local_cores
from ottla.spark.jvm.spark_session import session as new_session
from ottla.spark.options import sink_options
from ottla.spark.pipeline.frames import FrameRun, Frames, Mode
from ottla.spark.pipeline.lake_tables import table_writer
from ottla.spark.pipeline.parts import (
    BatchDeadLetters,
    EachBatchSink,
    LakeSink,
    ParquetSink,
    Position,
    Sink,
    TopicSink,
)
from ottla.spark.pipeline.replay import live_version
from ottla.spark.pipeline.running import LOOK_EVERY_S, PipelineFailed, Running
from ottla.spark.pipeline.starts import Starts, wire_of
from ottla.spark.reading.engine import takes_jvm
from ottla.spark.writing.sink_identity import check_identity
from ottla.telemetry import log_event
from ottla.wire_client import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ottla.spark.pipeline.definition import Pipeline

STARTS = 4
TOO_LATE = "Python worker failed to connect back"


def start(
    pipeline: Pipeline,
    spark: SparkSession | None,
    *,
    every: str | None = None,
    available_now: bool = False,
    only: Sequence[str] = (),
    since: Position | None = None,
) -> Running:
    """Start the queries of a pipeline. What already runs is stopped again when one does not start."""
    sinks = sinks_to_run(pipeline, only)
    session = spark or new_session(pipeline.name)
    folder = Path(tempfile.mkdtemp(prefix="ottla-pipeline-"))
    pause = folder / "pause"
    queries: dict[str, StreamingQuery] = {}
    with ExitStack() as opened:
        opened.callback(shutil.rmtree, folder, ignore_errors=True)
        wire = wire_of(pipeline)
        locations = [pipeline.checkpoint_of(sink.name) for sink in sinks]
        is_here = getattr(session, "_jvm", None) is not None  # through Spark Connect the store may be out of reach
        opened.enter_context(query_locks([each for each in locations if is_here or is_local(each)]))
        for sink in sinks:
            _refuse_foreign_output(pipeline, sink)
        try:
            with Cluster(wire) as cluster:
                starts = Starts(pipeline, cluster, since=since, spark=session)
                runs = {sink.name: _run(pipeline, session, sink, starts, pause) for sink in sinks}
            writers = {}
            for sink in sinks:
                rows = Frames(session, pipeline.parts, runs[sink.name]).rows_of(sink)
                writers[sink.name] = _writer(pipeline, sink, rows, every=every, available_now=available_now)
            _start_all(pipeline, writers, queries)
        except BaseException:
            for query in queries.values():
                query.stop()
            raise
        held = opened.pop_all()
    log_event(
        "pipeline_started", "info", {"pipeline": pipeline.name, "version": pipeline.version, "sinks": list(queries)}
    )
    return Running(pipeline, {sink.name: queries[sink.name] for sink in sinks}, pause, held)


def run_until_signal(pipeline: Pipeline, spark: SparkSession | None, *, every: str | None, available_now: bool) -> None:
    """Run in the foreground. The second signal stops at once."""
    session = spark or new_session(pipeline.name)
    stop = threading.Event()
    with (
        ctrl_c_spares_the_jvm(session),
        stop_on_signals(stop),
        start(pipeline, session, every=every, available_now=available_now) as running,
    ):
        while not stop.is_set() and running.is_active:
            running.raise_failure()
            running.report()
            stop.wait(LOOK_EVERY_S)
        running.raise_failure()
        log_event("pipeline_stopping", "info", {"pipeline": pipeline.name, "after": "the running micro-batches"})
    log_event("pipeline_stopped", "info", {"pipeline": pipeline.name, "version": pipeline.version})


def sinks_to_run(pipeline: Pipeline, only: Sequence[str]) -> list[Sink]:
    """Return the sinks asked for. Dead letters are written by the live version only."""
    unknown = [name for name in only if name not in pipeline.sinks]
    if unknown:
        raise ConfigError(f"pipeline {pipeline.name}: no sink {', '.join(unknown)}; it has {', '.join(pipeline.sinks)}")
    is_live = live_version(pipeline) == pipeline.version
    chosen = [s for s in pipeline.sinks.values() if not only or s.name in only]
    chosen = [s for s in chosen if is_live or not isinstance(s, BatchDeadLetters)]
    if not chosen:
        raise ConfigError(
            f"pipeline {pipeline.name}: nothing to run; declare a sink with write_parquet, write_topic, ..."
        )
    return chosen


def _run(pipeline: Pipeline, session: SparkSession, sink: Sink, starts: Starts, pause: Path) -> FrameRun:
    options: dict[str, dict[str, str]] = {}
    for source in pipeline.sources_of(sink):
        options[source.name] = starts.option(sink, source)
        given = {name: str(value) for name, value in source.options.items()}
        if not takes_jvm(source.engine, session, given):  # what Spark's own connector does not have
            options[source.name]["pauseFile"] = str(pause)
            if pipeline.publish_groups:
                options[source.name]["publishGroup"] = pipeline.group_of(sink.name)
    return FrameRun(
        mode=Mode.STREAM,
        bootstrap_servers=pipeline.bootstrap_servers,
        pipeline=pipeline.name,
        source_options=options,
    )


def _interval(every: str) -> str:
    """Return the time between micro-batches in Spark's words."""
    found = parse_duration_ms(every)
    if found is None:
        raise ConfigError(f"every: found {every!r}, wanted a time as {DURATIONS}")
    return f"{found} milliseconds"


def _writer(pipeline: Pipeline, sink: Sink, rows: Any, *, every: str | None, available_now: bool) -> Any:
    """Return the query of a sink, all but started."""
    if isinstance(sink, ParquetSink) and sink.files_per_batch is not None:
        rows = rows.coalesce(sink.files_per_batch)
    writer = rows.writeStream.queryName(f"{pipeline.name}.{pipeline.version}.{sink.name}")
    writer = writer.option("checkpointLocation", pipeline.checkpoint_of(sink.name)).outputMode(sink.output_mode)
    if available_now:
        writer = writer.trigger(availableNow=True)
    elif every is not None:
        writer = writer.trigger(processingTime=_interval(every))
    if isinstance(sink, EachBatchSink):
        writer = writer.foreachBatch(sink.function)
    elif isinstance(sink, LakeSink):
        writer = writer.foreachBatch(table_writer(pipeline, sink))
    elif isinstance(sink, ParquetSink):
        writer = writer.format("parquet").option("path", pipeline.in_version(sink.path))
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)
    else:
        assert isinstance(sink, TopicSink | BatchDeadLetters)
        options = {name: str(value) for name, value in sink.options.items()}
        options |= {"kafka.bootstrap.servers": pipeline.bootstrap_servers, "topic": pipeline.in_version(sink.topic)}
        check_identity(sink_options(options | {"checkpointLocation": pipeline.checkpoint_of(sink.name)}))
        writer = writer.format("ottla").options(**options)
    return writer


def _start_all(pipeline: Pipeline, writers: Mapping[str, Any], queries: dict[str, StreamingQuery]) -> None:
    """Start all queries, put each into `queries`, and wait until their sources are there.

    Raises `PipelineFailed` if Spark's engine cannot start one, for example because the store of its checkpoint fails.

    Spark gives the Python process of each source ten seconds to start. Many at once on a busy machine need longer, so
    no more start at once than there are cores, and one whose source came too late is started again.
    """
    from py4j.protocol import Py4JJavaError

    waiting, starting = list(writers), list[str]()
    starts = dict.fromkeys(writers, 0)
    while waiting or starting:
        while waiting and len(starting) < local_cores("local[*]"):
            name = waiting.pop(0)
            try:
                queries[name] = writers[name].start()
            except Py4JJavaError as error:  # an exception of the JVM that PySpark has no class of its own for
                reason = error.java_exception.toString()
                raise PipelineFailed(f"{pipeline.name}, sink {name}: not started: {reason}") from error
            starts[name] += 1
            starting.append(name)
        for name in [each for each in starting if not _is_initializing(queries[each])]:
            starting.remove(name)
            if starts[name] < STARTS and _came_too_late(queries[name]):
                log_event("pipeline_source_started_too_slowly", "warning", {"sink": name})
                waiting.append(name)
        if starting:
            time.sleep(LOOK_EVERY_S)


def _is_initializing(query: StreamingQuery) -> bool:
    return query.isActive and str(query.status["message"]).startswith("Initializing")


def _came_too_late(query: StreamingQuery) -> bool:
    return not query.isActive and TOO_LATE in str(query.exception() or "")


def _refuse_foreign_output(pipeline: Pipeline, sink: Sink) -> None:
    """Refuse a folder that another query wrote: Spark's file sink skips batches whose number is in the folder's log."""
    if not isinstance(sink, ParquetSink):
        return
    path, checkpoint = pipeline.in_version(sink.path), pipeline.checkpoint_of(sink.name)
    if files_of(path).names(f"{path}/_spark_metadata") and not is_checkpoint(checkpoint):
        raise ConfigError(
            f"sink {sink.name}: {path} was written by another query, and {checkpoint} is new. Spark would skip the"
            " first micro-batches, because their numbers are in the folder's log; write to a new folder, or version"
        )


@contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Set the event at SIGTERM or Ctrl-C; a second one has its default effect."""
    previous: dict[int, Any] = {}

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            signal.signal(number, previous[number])
            signal.raise_signal(number)
        stop.set()

    if threading.current_thread() is threading.main_thread():
        for wanted in (signal.SIGTERM, signal.SIGINT):
            previous[wanted] = signal.signal(wanted, on_signal)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def ctrl_c_spares_the_jvm(spark: SparkSession) -> Iterator[None]:
    """Have the JVM and what it starts from now on ignore Ctrl-C, under spark-submit.

    A terminal sends Ctrl-C to every process in the foreground. A JVM that Python started ignores it, and so do the
    processes that it starts (`interrupts.py` sees to its workers). Under spark-submit the JVM comes first, and Ctrl-C
    would end it at once, with its queries.
    """
    jvm: Any = getattr(spark, "_jvm", None)  # Spark Connect's sessions have none
    if jvm is None or "PYSPARK_GATEWAY_PORT" not in os.environ:  # the JVM is elsewhere, or Python started it
        yield
        return
    signals = jvm.sun.misc
    interrupt = signals.Signal("INT")
    previous = signals.Signal.handle(interrupt, signals.SignalHandler.SIG_IGN)
    try:
        yield
    finally:
        signals.Signal.handle(interrupt, previous)
