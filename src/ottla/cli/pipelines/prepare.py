"""`ottla pipeline prepare`: from now on Spark starts in half the time on this machine.

Runs what pipelines do (read, decode, windows, joins, files, a topic) against an embedded broker, and keeps the classes
that Spark loaded for it in an archive (`ottla.spark.jvm.class_archive`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RECORDS = 200


@click.command()
@click.option("--again", is_flag=True, help="Create the archive again, even if it exists.")
@click.option("--if-possible", is_flag=True, help="If Java cannot write an archive, print that and succeed.")
@click.option(
    "--options", "only_options", is_flag=True, help="Only print the value of SPARK_SUBMIT_OPTS that uses the archive."
)
def prepare(again: bool, if_possible: bool, only_options: bool) -> None:
    """Make Spark start faster on this machine, or in this image.

    Keeps the classes that Spark loads in an archive beside the installed packages (some 190 MB; half a minute, once).
    `ottla pipeline run` and `ottla.spark.session` use it automatically; for spark-submit:

        export SPARK_SUBMIT_OPTS="$(ottla pipeline prepare --options)"

    \b
    Examples:
      ottla pipeline prepare
      ottla pipeline prepare --options
    """
    from ottla.spark.jvm.class_archive import NoClassArchive, archive_options, class_archive, make_class_archive
    from ottla.spark.jvm.java import find_java

    java = find_java()
    found = class_archive(java)
    if only_options:
        if found is None:
            raise NoClassArchive(
                f"there is no archive of Spark's classes for {java}: `ottla pipeline prepare` makes it"
            )
        click.echo(archive_options(found))
        return
    if found is not None and not again:
        click.echo(f"Spark starts from {found}, made before (--again makes it anew)")
        return
    click.echo(f"ottla: running a pipeline on {java} to see which classes it loads", err=True)
    try:
        with _what_pipelines_do() as exercise:
            made = make_class_archive(java, exercise)
    except NoClassArchive as error:
        if not if_possible:
            raise
        click.echo(f"Spark starts as it always did: {error}", err=True)
        return
    click.echo(f"Spark starts from {made} ({made.stat().st_size / 1e6:,.0f} MB)")


@contextmanager
def _what_pipelines_do() -> Iterator[_Exercise]:
    from ottla.testing import running_kafka

    with running_kafka("embedded") as kafka, tempfile.TemporaryDirectory(prefix="ottla-prepare-") as folder:
        source = kafka.create_topic("prepare-in", partitions=2)
        kafka.create_topic("prepare-out")
        kafka.produce(source, [f'{{"n": {n}, "at": {n * 1000}}}' for n in range(_RECORDS)])
        yield _Exercise(kafka.bootstrap_servers, Path(folder))


class _Exercise:
    """Loads the classes. Its results matter as little as its speed: nothing here is an example of how to do it."""

    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        self._options = {"kafka.bootstrap.servers": bootstrap_servers, "startingOffsets": "earliest"}
        self._folder = folder

    def __call__(self) -> SparkSession:
        from ottla.spark import session

        config = {
            "spark.sql.shuffle.partitions": 1,
            # A minute's work never earns back what the second compiler costs.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        spark = session("ottla-prepare", master="local[2]", config=config)
        self._batches(spark)
        self._streams(spark)
        # Plans that are interpreted need other classes than plans that are compiled.
        spark.conf.set("spark.sql.codegen.wholeStage", False)
        spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        self._batches(spark)
        return spark

    def _batches(self, spark: SparkSession) -> None:
        from pyspark.sql import functions as f

        rows = spark.read.format("ottla").options(**self._options, subscribe="prepare-in").load()
        parsed = rows.select(f.from_json(f.col("value").cast("string"), "n long, at long").alias("v")).select("v.*")
        totals = parsed.groupBy((f.col("n") % 7).alias("g")).agg(f.count("*").alias("n"), f.avg("at").alias("at"))
        totals.write.mode("overwrite").parquet(str(self._folder / "totals"))
        again = spark.read.parquet(str(self._folder / "totals"))
        again.createOrReplaceTempView("totals")
        parsed.join(f.broadcast(again), "n", "left").orderBy("n").collect()
        spark.sql("SELECT g, SUM(n) OVER (PARTITION BY g % 2 ORDER BY g) AS s FROM totals WHERE g > 1").collect()
        spark.createDataFrame([(b"key", b"value")], "key binary, value binary").write.format("ottla").options(
            **self._options, topic="prepare-out"
        ).mode("append").save()

    def _streams(self, spark: SparkSession) -> None:
        from pyspark.sql import functions as f

        rows = spark.readStream.format("ottla").options(**self._options, subscribe="prepare-in").load()
        value = f.from_json(f.col("value").cast("string"), "n long, at long")
        events = (
            rows.select("timestamp", value.alias("v")).select("timestamp", "v.*").withWatermark("timestamp", "1 hour")
        )
        windows = events.groupBy(f.window("timestamp", "1 hour"), (f.col("n") % 5).alias("n")).count()
        unique = events.dropDuplicatesWithinWatermark(["n"])
        pairs = unique.alias("a").join(
            events.alias("b"), f.expr("a.n = b.n AND b.timestamp <= a.timestamp + INTERVAL 1 HOUR")
        )
        writers = [
            events.writeStream.format("parquet").option("path", str(self._folder / "files")),
            windows.writeStream.outputMode("update").foreachBatch(_collect),
            pairs.select("a.n").writeStream.foreachBatch(_collect),
            rows.select("key", "value").writeStream.format("ottla").options(**self._options, topic="prepare-out"),
        ]
        queries = [
            writer.option("checkpointLocation", str(self._folder / f"checkpoint-{number}"))
            .trigger(availableNow=True)
            .start()
            for number, writer in enumerate(writers)
        ]
        for query in queries:
            query.awaitTermination()


def _collect(batch: DataFrame, _number: int) -> None:
    batch.collect()
