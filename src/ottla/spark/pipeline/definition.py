"""`Pipeline`: a definition of sources, views and sinks that runs as a stream, as a bounded batch, or as a replay.

    pipeline = Pipeline("delays", checkpoint="/data/checkpoints")
    pipeline.read_topic("flights", value=Json(Flight), select=["value.*"], watermark=("at", "1 hour"), unique=["id"])

    @pipeline.view
    def late(flights: DataFrame) -> DataFrame:
        return flights.where("delay > 15")

    pipeline.sql("by_hour", "SELECT window(at, '1 hour') AS hour, origin, count(*) AS late FROM late GROUP BY ALL")
    pipeline.write_parquet("by_hour", "/lake/delays/{version}")

    pipeline.run()

Declaring starts no Spark and needs no Java. Names are checked as they are declared, so a mistake is an error at
import. `{version}` in a path or a topic is the pipeline's version: a replay writes beside the version that is live.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.spark.pipeline.declaration import Declaration, checked_place, checked_version
from ottla.spark.pipeline.parts import Position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.spark.pipeline.batch import BatchReport
    from ottla.spark.pipeline.planning import Lag, Plan
    from ottla.spark.pipeline.running import Running


class Pipeline(Declaration):
    """A declared pipeline. Its methods that start something take a Spark session, or make one."""

    def at(
        self, *, version: str | None = None, bootstrap_servers: str | None = None, checkpoint: str | None = None
    ) -> Pipeline:
        """Return the same definition with another version, cluster or checkpoint; None leaves each as it is.

        Raises `ConfigError` for an empty one, which is what a variable that is not set gives.
        """
        other = copy.copy(self)
        if version is not None:
            other.version = checked_version(version)
        if checkpoint is not None:
            other.checkpoint = checked_place("checkpoint", checkpoint).rstrip("/")
        if bootstrap_servers is not None:
            other._bootstrap_servers = checked_place("bootstrap_servers", bootstrap_servers)
        return other

    def start(
        self,
        spark: SparkSession | None = None,
        *,
        every: str | None = None,
        available_now: bool = False,
        only: Sequence[str] = (),
    ) -> Running:
        """Start the queries and answer at once. `every` is the time between micro-batches; by default the next begins

        when the last has ended. `available_now` reads what there is and ends. `only` names sinks.
        """
        from ottla.spark.pipeline.launch import start

        return start(self, spark, every=every, available_now=available_now, only=only)

    def run(self, spark: SparkSession | None = None, *, every: str | None = None, available_now: bool = False) -> None:
        """Run until SIGTERM or Ctrl-C, then stop after the running micro-batches. Raises what failed."""
        from ottla.spark.pipeline.launch import run_until_signal

        run_until_signal(self, spark, every=every, available_now=available_now)

    def batch(
        self,
        spark: SparkSession | None = None,
        *,
        since: Position = "earliest",
        until: Position = "now",
        only: Sequence[str] = (),
    ) -> BatchReport:
        """Run the definition once over what lies between two positions: a backfill, or the batch side of a lambda."""
        from ottla.spark.pipeline.batch import run_batch

        return run_batch(self, spark, since=since, until=until, only=only)

    def replay(
        self,
        spark: SparkSession | None = None,
        *,
        version: str,
        since: Position = "earliest",
        only: Sequence[str] = (),
    ) -> Pipeline:
        """Read history again into a new version, up to now; answers the pipeline in that version, for `start`.

        It runs as a stream, so windows and state are as if the version had always run, and its checkpoint goes on from
        where the replay ended. Then `switch_over`.
        """
        from ottla.spark.pipeline.replay import replay

        return replay(self, spark, version=version, since=since, only=only)

    def switch_over(self, version: str, *, force: bool = False) -> None:
        """Make `version` the live one. Refused while it has read less than the one that is live now."""
        from ottla.spark.pipeline.replay import switch_over

        switch_over(self, version, force=force)

    def live_version(self) -> str:
        """Return the version that readers should use: the last one switched over to, else this definition's."""
        from ottla.spark.pipeline.replay import live_version

        return live_version(self)

    def plan(self) -> Plan:
        """Return what the next micro-batch of each sink would read, by which tasks. Runs nothing and needs no Java."""
        from ottla.spark.pipeline.planning import plan

        return plan(self)

    def lag(self) -> list[Lag]:
        """Return how many records each sink is behind, by its checkpoint: also for a pipeline that runs in another
        process.
        """
        from ottla.spark.pipeline.planning import lag

        return lag(self)

    def describe(self) -> str:
        """Return the definition as text."""
        from ottla.spark.pipeline.planning import describe

        return describe(self)
