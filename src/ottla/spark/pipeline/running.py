"""A pipeline that runs as streams: one Spark query for each sink, started, watched and stopped together.

Stopping is asked of the sources: while the pause file exists they plan no new micro-batch, so the running ones end as
always and the queries can be stopped between two. `StreamingQuery.stop()` alone would cut a micro-batch off; nothing
is lost by that, but its work is.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ottla.errors import OttlaError
from ottla.spark.checkpoints.offsets import Offsets
from ottla.spark.pipeline.progress import SinkMetrics, metrics_of, position_of, report_progress
from ottla.spark.pipeline.starts import options_of, wire_of
from ottla.spark.reading.subscription import offsets_at, subscribed_partitions
from ottla.wire_client import LATEST, Cluster

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from ottla.spark.pipeline.definition import Pipeline
    from ottla.spark.pipeline.planning import Lag

LOOK_EVERY_S = 0.05


class PipelineFailed(OttlaError):
    """Fix what the first query failed with (the cause); the others were stopped after their running micro-batches."""


class NotCaughtUp(OttlaError, TimeoutError):
    """Wait longer, or find out what is slow: the message says how far each sink is behind."""


class Running:
    """A started pipeline. As a context manager it is stopped at the end."""

    def __init__(self, pipeline: Pipeline, queries: dict[str, StreamingQuery], pause: Path, held: ExitStack) -> None:
        self.pipeline = pipeline
        self.queries = queries
        self._pause = pause
        self._held = held
        self._reported: dict[str, int] = {}

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def is_active(self) -> bool:
        """Return whether any query still runs."""
        return any(query.isActive for query in self.queries.values())

    def stop(self, timeout_s: float = 60.0) -> None:
        """Stop after the running micro-batches, which get `timeout_s`; then at once. Safe to repeat."""
        if not self._pause.parent.exists():
            return  # stopped before
        self._pause.touch()
        deadline = time.monotonic() + timeout_s
        while any(_is_busy(query) for query in self.queries.values()) and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY_S)
        for query in self.queries.values():
            query.stop()
        self.report()
        self._held.close()

    def await_end(self, timeout_s: float | None = None) -> bool:
        """Wait until every query has ended, as those of `available_now` do; raises what one failed with.

        Answers whether they have, for the case that `timeout_s` came first.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self.is_active:
            self.raise_failure()
            self.report()
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(LOOK_EVERY_S)
        self.raise_failure()
        self.stop()
        return True

    def await_caught_up(self, timeout_s: float = 60.0) -> None:
        """Wait until everything that is in the topics now has been read, and its micro-batches are committed.

        Raises `NotCaughtUp` after `timeout_s`.
        """
        with Cluster(wire_of(self.pipeline)) as cluster:
            goals = {name: self._ends(cluster, name) for name in self.queries}
        deadline = time.monotonic() + timeout_s
        while True:
            self.raise_failure()
            self.report()
            missing = {name: behind for name, goal in goals.items() if (behind := self._behind(name, goal))}
            if not missing:
                return
            if time.monotonic() >= deadline:
                raise NotCaughtUp(f"after {timeout_s:g} s, records not yet read: {missing}")
            time.sleep(LOOK_EVERY_S)

    def lag(self) -> list[Lag]:
        """Return how many records each partition of each sink is behind."""
        from ottla.spark.pipeline.planning import Lag

        with Cluster(wire_of(self.pipeline)) as cluster:
            found = []
            for name, query in self.queries.items():
                position = position_of(self.pipeline, name, query)
                ends = self._ends(cluster, name)
                found += [Lag(sink=name, partition=p, position=position.get(p, 0), end=ends[p]) for p in sorted(ends)]
            return found

    def metrics(self) -> dict[str, SinkMetrics]:
        """Return counts and rates of each sink, from the progress that Spark keeps."""
        return {name: metrics_of(name, query) for name, query in self.queries.items()}

    def report(self) -> None:
        """Log micro-batches that have ended since the last call, and call the pipeline's hooks."""
        for name, query in self.queries.items():
            self._reported[name] = report_progress(self.pipeline, name, query, after=self._reported.get(name, -1))

    def raise_failure(self) -> None:
        """Stop everything and raise, if a query has failed. Raises `PipelineFailed`."""
        for name, query in self.queries.items():
            error = None if query.isActive else query.exception()
            if error is not None:
                self.stop()
                raise PipelineFailed(f"{self.pipeline.name}, sink {name}: {error}") from error

    def _behind(self, sink: str, goal: Offsets) -> int:
        position = position_of(self.pipeline, sink, self.queries[sink])
        return sum(max(0, end - position.get(p, 0)) for p, end in goal.items() if end)

    def _ends(self, cluster: Cluster, sink: str) -> Offsets:
        ends: Offsets = {}
        for source in self.pipeline.sources_of(self.pipeline.sinks[sink]):
            options = options_of(self.pipeline, source, {})
            ends |= offsets_at(cluster, subscribed_partitions(cluster, options), LATEST)
        return ends


def _is_busy(query: StreamingQuery) -> bool:
    if not query.isActive:
        return False
    status: dict[str, Any] = query.status
    return bool(status["isTriggerActive"] and status["isDataAvailable"])
