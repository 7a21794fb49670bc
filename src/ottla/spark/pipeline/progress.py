"""What a query says of itself, in the words of the pipeline: position, counts, rates."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.records import TopicPartition
from ottla.spark.checkpoints.checkpoint import is_checkpoint, read_checkpoint
from ottla.spark.checkpoints.files import is_local
from ottla.spark.checkpoints.offsets import Offsets, from_json_dict
from ottla.telemetry import Listeners, log_event
from ottla.telemetry.metrics.measurements import MemberMeasure, PartitionMeasure

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from ottla.spark.pipeline.definition import Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkMetrics:
    """Of the micro-batches that Spark remembers (the last 100 by default)."""

    sink: str
    is_active: bool
    last_batch: int | None
    rows: int
    malformed: int
    rows_per_second: float
    batch_ms: int
    lag: int
    """Records behind the end of the topics when the last micro-batch was planned; `Running.lag()` reads it again."""
    late_rows: int
    state_rows: int


def position_of(pipeline: Pipeline, sink: str, query: StreamingQuery) -> Offsets:
    """Return the offsets that are read and committed: from the checkpoint, or from the progress where that is out of
    reach."""
    location = pipeline.checkpoint_of(sink)
    if is_local(location):
        if not is_checkpoint(location):
            return {}
        try:
            return read_checkpoint(location).position
        except FileNotFoundError:
            return {}  # Spark removed an old file while we looked; the next look will find the new one
    last = next(_newest_first(query), None)
    return _end_offsets(last) if last is not None else {}


def metrics_of(sink: str, query: StreamingQuery) -> SinkMetrics:
    """Return the metrics of one query."""
    progress = _progress(query)
    rows = sum(p["numInputRows"] for p in progress)
    busy_ms = sum(p["durationMs"].get("triggerExecution", 0) for p in progress if p["numInputRows"])
    last = progress[-1] if progress else None
    operators = last.get("stateOperators", []) if last else []
    return SinkMetrics(
        sink=sink,
        is_active=query.isActive,
        last_batch=None if last is None else last["batchId"],
        rows=rows,
        malformed=sum(_malformed(p) for p in progress),
        rows_per_second=rows * 1000 / busy_ms if busy_ms else 0.0,
        batch_ms=0 if last is None else last["durationMs"].get("triggerExecution", 0),
        lag=0 if last is None else _lag(last),
        late_rows=sum(o["numRowsDroppedByWatermark"] for p in progress for o in p.get("stateOperators", [])),
        state_rows=sum(o["numRowsTotal"] for o in operators),
    )


def report_progress(pipeline: Pipeline, sink: str, query: StreamingQuery, *, after: int) -> int:
    """Log each micro-batch with rows that ended after batch `after`; the number of the last one."""
    last = after
    for progress in _progress(query, after=after):
        last = max(last, progress["batchId"])
        if progress["numInputRows"]:
            _report(pipeline, sink, progress)
    return last


def _report(pipeline: Pipeline, sink: str, progress: Mapping[str, Any]) -> None:
    rows, malformed = progress["numInputRows"], _malformed(progress)
    took_ms = progress["durationMs"].get("triggerExecution", 0)
    fields = {
        "pipeline": pipeline.name,
        "version": pipeline.version,
        "sink": sink,
        "batch": progress["batchId"],
        "rows": rows,
        "malformed": malformed,
        "took_ms": took_ms,
        "rows_per_second": round(rows * 1000 / took_ms) if took_ms else 0,
        "lag": _lag(progress),
    }
    log_event("pipeline_batch", "info", fields)
    listeners = Listeners.of(pipeline.hooks)
    topic = ",".join(sorted({p.topic for p in _end_offsets(progress)}))
    listeners.run_finished(
        group=pipeline.name,
        handler=sink,
        topic=topic,
        handled=rows - malformed,
        failed=0,
        malformed=malformed,
        skipped=0,
        duration_ms=took_ms,
    )
    listeners.run_timed(
        group=pipeline.name,
        handler=sink,
        topic=topic,
        records=rows,
        is_batch=True,
        duration_s=took_ms / 1_000,
        buffered_s=0.0,
        end_to_end_s=None,
    )
    listeners.measured(group=pipeline.name, member=sink, measure=_measure(sink, progress))


def _measure(sink: str, progress: Mapping[str, Any]) -> MemberMeasure:
    """Return the lag of each partition, as the source saw it. A query buffers nothing, and its records have no ages."""
    return MemberMeasure(
        partitions=tuple(
            PartitionMeasure(
                topic_partition=TopicPartition(*name),
                handler=sink,
                lag_records=lag,
                lag_s=None,
                oldest_unfinished_s=0.0,
                buffered_records=0,
                buffered_bytes=0,
            )
            for name, lag in sorted(_lags(progress).items())
        )
    )


def _progress(query: StreamingQuery, *, after: int = -1) -> list[dict[str, Any]]:
    """Return Spark's records of the micro-batches behind batch `after`, the oldest first."""
    return list(_newest_first(query, after=after))[::-1]


def _newest_first(query: StreamingQuery, *, after: int = -1) -> Iterator[dict[str, Any]]:
    """Yield batches from the newest back to `after`, no further than is asked for.

    Each costs calls into the JVM, a hundred are remembered, and a pipeline looks many times a second: to fetch all of
    them at each look kept a core busy for as long as the pipeline ran.
    """
    in_jvm = getattr(query, "_jsq", None)
    # Spark Connect sends all of them in one answer.
    remembered: Any = query.recentProgress if in_jvm is None else in_jvm.recentProgress()
    for each in reversed(remembered):
        if (each.batchId if in_jvm is None else each.batchId()) <= after:
            return
        progress: dict[str, Any] = json.loads(each.json if in_jvm is None else each.json())
        # Through Spark Connect the sum over all sources is missing.
        progress.setdefault("numInputRows", sum(source["numInputRows"] for source in progress["sources"]))
        yield progress


def _malformed(progress: Mapping[str, Any]) -> int:
    return sum(int(row.get("malformed", 0)) for row in progress.get("observedMetrics", {}).values())


def _end_offsets(progress: Mapping[str, Any]) -> Offsets:
    found: Offsets = {}
    for source in progress["sources"]:
        end = source.get("endOffset")
        if isinstance(end, dict):
            found |= from_json_dict(end)[0]
    return found


def _lag(progress: Mapping[str, Any]) -> int:
    """Return records behind the end of the topics, as the source saw it when the micro-batch was planned."""
    return sum(_lags(progress).values())


def _lags(progress: Mapping[str, Any]) -> Offsets:
    lags: Offsets = {}
    for source in progress["sources"]:
        latest, end = source.get("latestOffset"), source.get("endOffset")
        if isinstance(latest, dict) and isinstance(end, dict):
            ends = from_json_dict(end)[0]
            lags |= {p: max(0, offset - ends.get(p, 0)) for p, offset in from_json_dict(latest)[0].items()}
    return lags
