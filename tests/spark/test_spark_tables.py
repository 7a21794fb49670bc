"""Delta and Iceberg tables of one pipeline: the same rows and columns, for every reader."""

from __future__ import annotations

import os
import subprocess
import sys

import deltalake
import duckdb
import polars
import pyspark
import pytest
from maven_jars import Unavailable, maven_jars
from pyiceberg.catalog import load_catalog
from spark_processes import environment

from ottla.serdes import Avro, SerdeContext
from ottla.spark import Pipeline
from ottla.spark.writing import table_writer
from ottla.spark.writing.delta import DeltaLakeTable
from ottla.spark.writing.table_writer import TableWriter
from ottla.testing.registry import EmbeddedRegistry

pytestmark = pytest.mark.spark

FIELDS = [{"name": "n", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}]


@pytest.fixture
def catalog(tmp_path):
    return {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}


def test_a_field_that_a_schema_of_a_registry_gains_becomes_a_column(spark, kafka, make_topic, tmp_path, catalog):
    topic, lake = make_topic(), str(tmp_path / "lake")
    with EmbeddedRegistry() as registry:
        url = registry.url
        for known, row in ((1, {"n": 1}), (2, {"n": 2, "note": "new"})):
            schema = {"type": "record", "name": "Sale", "fields": FIELDS[:known]}
            kafka.produce(topic, [Avro(schema, registry=url).serialize(row, SerdeContext("sales"))])
            found = Pipeline("sales", bootstrap_servers=kafka.bootstrap_servers, checkpoint=str(tmp_path / "ck"))
            found.read_topic("sales", topic, value=lambda schema=schema: Avro(schema, registry=url), select=["value.*"])
            found.write_delta("sales", lake, name="delta")
            found.write_iceberg("sales", "lake.sales", catalog=catalog, name="iceberg")
            with found.start(spark, available_now=True) as running:
                running.await_end()
    rows = [(1, None), (2, "new")]
    table = load_catalog("default", **catalog).load_table("lake.sales")
    assert polars.from_arrow(table.scan().to_arrow()).sort("n").rows() == rows
    assert polars.read_delta(lake).sort("n").rows() == rows
    with duckdb.connect() as connection:
        connection.register("sales", deltalake.DeltaTable(lake).to_pyarrow_dataset())
        assert connection.sql("SELECT n, note FROM sales ORDER BY n").fetchall() == rows


READER = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.jars", sys.argv[2])
for name, value in {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
}.items():
    builder = builder.config(name, value)
rows = builder.getOrCreate().read.format("delta").load(sys.argv[1])
print("FOUND", sorted(map(tuple, rows.select("n", "kind").collect())))
"""


@pytest.mark.skipif(not pyspark.__version__.startswith("4.2."), reason=f"needs a delta-spark of {pyspark.__version__}")
def test_spark_reads_a_delta_table_with_its_own_reader(spark, monkeypatch, tmp_path):
    """After appends, a new column, an update and a deletion by key."""
    monkeypatch.setattr(table_writer, "query_id", lambda spark: "query-1")
    lake = str(tmp_path / "lake")
    table = DeltaLakeTable(lake, partition_by=["kind"])
    append = TableWriter(table)
    append(spark.createDataFrame([(1, "a"), (2, "b/c")], "n long, kind string"), 0)
    append(spark.createDataFrame([(3, None)], "n long, kind string"), 1)
    merge = TableWriter(table, key=["n"], order_by="o", delete="gone")
    merge(
        spark.createDataFrame([(1, "z", 1, False), (2, None, 2, True)], "n long, kind string, o long, gone boolean"), 2
    )
    try:
        jars = ",".join(map(str, maven_jars("delta.pom.xml", tmp_path / "jars")))
    except Unavailable as reason:
        pytest.skip(str(reason))
    (tmp_path / "reader.py").write_text(READER)
    command = [sys.executable, str(tmp_path / "reader.py"), lake, jars]
    ran = subprocess.run(
        command, env=os.environ | environment(), capture_output=True, text=True, timeout=250, check=False
    )
    assert "FOUND [(1, 'z'), (3, None)]" in ran.stdout, ran.stdout + ran.stderr[-4_000:]
