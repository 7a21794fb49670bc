"""Starting offsets beside a checkpoint that is no local folder: Spark keeps them, on whatever it can write to.

Stands for object storage: `viewfs`, a file system of Hadoop's own that nothing outside of the JVM understands.
"""

from __future__ import annotations

import pytest

from ottla.columnar import Cluster, wire_settings
from ottla.errors import ConfigError
from ottla.records import TopicPartition
from ottla.spark import Pipeline
from ottla.spark.pipeline.starts import Starts, start_kept_by_spark

pytestmark = pytest.mark.spark


@pytest.fixture
def pipeline(kafka, make_topic, lake):
    topic = make_topic()
    kafka.produce(topic, ["before"])
    found = Pipeline("kept", bootstrap_servers=kafka.bootstrap_servers, checkpoint=f"{lake}/checkpoints")
    found.read_topic("events", topic, select=["CAST(value AS STRING) AS value"], start="latest")
    return found


@pytest.fixture
def decide(spark, pipeline):
    """What a pipeline that starts decides; nothing of an earlier start is in memory."""

    def of(sink, **options):
        with Cluster(wire_settings(bootstrap_servers=pipeline.bootstrap_servers)) as cluster:
            return Starts(pipeline, cluster, spark=spark).of(sink, pipeline.streams()[0], **options)

    return of


def test_a_restart_before_the_first_commit_skips_nothing(pipeline, decide, kafka, spark, lake):
    rows = []
    pipeline.write_each("events", lambda batch, _: rows.extend(row.value for row in batch.collect()))
    (sink,) = pipeline.sinks.values()
    partition = TopicPartition(pipeline.streams()[0].topics, 0)

    assert decide(sink, keep=False) == {partition: 1}
    assert decide(sink, keep=True) == {partition: 1}
    kafka.produce(partition.topic, ["after"])  # the first start ended here
    assert decide(sink, keep=True) == {partition: 1}

    pipeline.run(spark, available_now=True)
    assert rows == ["after"]


def test_what_was_begun_and_not_finished_is_decided_anew(spark, lake, tmp_path):
    partition = TopicPartition("t", 0)
    (tmp_path / "lake" / "start.json" / "_temporary").mkdir(parents=True)
    assert start_kept_by_spark(spark, f"{lake}/start.json", lambda: {partition: 7}) == {partition: 7}
    assert start_kept_by_spark(spark, f"{lake}/start.json", lambda: {partition: 8}) == {partition: 7}


def test_what_is_no_starting_offsets_is_said_with_its_place(spark, lake, tmp_path):
    folder = tmp_path / "lake" / "start.json"
    folder.mkdir()
    (folder / "part-0").write_text("{nonsense\n")
    with pytest.raises(ConfigError, match=r"viewfs://.*/start.json: not starting offsets"):
        start_kept_by_spark(spark, f"{lake}/start.json", dict)
    (folder / "part-1").write_text("{}\n")
    with pytest.raises(ConfigError, match=r"start.json: found 2 lines, wanted one"):
        start_kept_by_spark(spark, f"{lake}/start.json", dict)
    with pytest.raises(Exception, match="viewfs://nowhere"):
        start_kept_by_spark(spark, "viewfs://nowhere/start.json", dict)
