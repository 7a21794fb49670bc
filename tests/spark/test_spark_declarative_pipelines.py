"""The page about Spark's declarative pipelines: its files run by `spark-pipelines`, twice."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from spark_processes import SHORT_LIVED, environment

import ottla.columnar
from ottla.spark import JavaMissing, find_java

pyspark = pytest.importorskip("pyspark")
for _needed in ("grpc", "grpc_status", "zstandard", "google.rpc", "pandas", "yaml"):
    pytest.importorskip(_needed, reason="needs pip install 'pyspark[pipelines]' (`tools/run spark-oldest` has it)")

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "spark-declarative-pipelines.md"


@pytest.fixture
def project(make_cluster, tmp_path):
    """The files of the page, with a Kafka of its own and storage in a folder of the test."""
    try:
        find_java()
    except JavaMissing as error:
        pytest.skip(f"needs Java: {error}")
    kafka = make_cluster(brokers=1)
    for topic in ("orders", "orders-copy"):
        kafka.create_topic(topic, partitions=2)
    blocks = re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```', PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert [name for name, _ in blocks] == ["spark-pipeline.yml", "transformations/orders.py"]
    for name, text in blocks:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        text = text.replace("localhost:9092", kafka.bootstrap_servers)
        file.write_text(text.replace("file:///data/pipelines/orders", (tmp_path / "storage").as_uri()))
    return kafka.bootstrap_servers


def run(folder, **more):
    (line,) = re.findall(r"^\$ spark-pipelines (.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    program = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"
    java = {name: value for name, value in environment().items() if name != "SPARK_SUBMIT_OPTS"}
    environ = os.environ | java | {"PYSPARK_PYTHON": sys.executable, "SPARK_SUBMIT_OPTS": SHORT_LIVED}
    command = [str(program), *line.split()]
    return subprocess.run(
        command, cwd=folder, env=environ | more, capture_output=True, text=True, timeout=300, check=False
    )


def copied(servers):
    table = ottla.columnar.read("orders-copy", bootstrap_servers=servers, columns=("value",)).read_all()
    return sorted(value.decode() for value in table.column("value").to_pylist())


def test_a_topic_is_a_streaming_table_and_a_sink_exactly_once(project, tmp_path):
    rows = [f"row {i:02}" for i in range(20)]
    ottla.columnar.write("orders", pa.table({"value": rows[:10]}), bootstrap_servers=project)
    ran = run(tmp_path)
    assert ran.returncode == 0, ran.stdout[-3_000:] + ran.stderr[-3_000:]
    assert copied(project) == rows[:10]
    assert list((tmp_path / "spark-warehouse").rglob("*.parquet"))
    ottla.columnar.write("orders", pa.table({"value": rows[10:]}), bootstrap_servers=project)
    again = run(tmp_path)
    assert "LOCATION_ALREADY_EXISTS" in again.stdout + again.stderr  # the table, whose catalog was in memory
    source = tmp_path / "transformations" / "orders.py"
    only_the_sink = re.sub(r"@dp.table\n.*?\n\n\n", "", source.read_text(), flags=re.DOTALL)
    source.write_text(only_the_sink)
    last = run(tmp_path)
    assert last.returncode == 0, last.stdout[-3_000:] + last.stderr[-3_000:]
    assert copied(project) == rows
