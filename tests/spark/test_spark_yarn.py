"""A pipeline with a packed environment on YARN, by the lines of the page about clusters.

A resource manager and a node manager of Hadoop's own run in processes here.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from maven_jars import Unavailable
from packed_program import run_lines
from spark_yarn import YarnCluster

import ottla.columnar
from ottla.spark import JavaMissing, find_java

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

PROGRAM = """
import sys
from pathlib import Path

import ottla.spark
from ottla.spark import Pipeline

pipeline = Pipeline("packed", bootstrap_servers="SERVERS", checkpoint="FOLDER/checkpoints")
pipeline.read_topic("rows", "TOPIC", select=["CAST(value AS STRING) AS value"])


def where(batches):
    import sys

    import pyarrow as pa

    for batch in batches:
        yield pa.record_batch({"value": [f"{each} {sys.prefix}" for each in batch["value"].to_pylist()]})


@pipeline.view
def placed(rows):
    return rows.mapInArrow(where, "value string")


pipeline.write_topic("placed", "TOPIC.out", value="value", delivery="exactly-once")
spark = ottla.spark.session("packed")
with pipeline.start(spark, available_now=True) as running:
    running.await_end()
Path("FOLDER", "driver").write_text(f"{spark.conf.get('spark.submit.deployMode')} {sys.prefix}")
"""


@pytest.fixture(scope="module")
def yarn(tmp_path_factory):
    try:
        find_java()
        started = YarnCluster(tmp_path_factory.mktemp("yarn"))
    except (JavaMissing, Unavailable) as reason:
        pytest.skip(f"needs YARN: {reason}")
    try:
        yield started
    finally:
        started.close()


def test_a_pipeline_runs_on_yarn_in_client_and_in_cluster_mode(yarn, kafka, make_topic, tmp_path):
    """Cluster mode continues where client mode ended: on the checkpoint, with the next rows."""
    topic = make_topic(partitions=2)
    kafka.create_topic(f"{topic}.out")
    program = PROGRAM.replace("TOPIC", topic).replace("SERVERS", kafka.bootstrap_servers)
    (tmp_path / "program.py").write_text(program.replace("FOLDER", str(tmp_path)))
    environ = {"HADOOP_CONF_DIR": str(yarn.conf), "SPARK_CONF_DIR": str(yarn.conf), "MASTER": "yarn"}
    try:
        kafka.produce(topic, [str(i) for i in range(20)], partition=0)
        run_lines("pack and submit", tmp_path, **environ)
        assert (tmp_path / "driver").read_text() == f"client {os.path.realpath(sys.prefix)}"
        assert _written(kafka, topic, yarn.local) == list(range(20))

        kafka.produce(topic, [str(i) for i in range(20, 30)], partition=1)
        (tmp_path / "env").unlink()
        run_lines("YARN in cluster mode", tmp_path, **environ)
    except AssertionError as error:
        containers = [log.read_text()[-3_000:] for log in yarn.logs.glob("*/*/stderr")]
        raise AssertionError("\n".join([str(error), *containers])) from None
    mode, prefix = (tmp_path / "driver").read_text().split()
    assert mode == "cluster"
    assert Path(prefix).is_relative_to(yarn.local)
    assert _written(kafka, topic, yarn.local) == list(range(30))


def _written(kafka, topic, local):
    """The rows of the output, sorted, each written by a Python in the folder of a container."""
    table = ottla.columnar.read(
        f"{topic}.out", bootstrap_servers=kafka.bootstrap_servers, columns=("value",)
    ).read_all()
    rows = [value.decode().split(" ") for value in table.column("value").to_pylist()]
    assert all(Path(prefix).is_relative_to(local) for _, prefix in rows), rows
    return sorted(int(number) for number, _ in rows)
