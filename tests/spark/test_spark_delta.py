"""Delta tables without a jar: one commit for each micro-batch, passed over when repeated, nothing half visible."""

from __future__ import annotations

import datetime as dt
import json

import deltalake
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from ottla.errors import ConfigError
from ottla.serdes import Json
from ottla.spark import Pipeline, PipelineFailed
from ottla.spark.writing import delta as module
from ottla.spark.writing import table_files, table_writer
from ottla.spark.writing.table_files import _Files, _split
from ottla.spark.writing.table_writer import TableWriter

DAY = dt.date(2026, 1, 2)


def test_rows_are_split_by_partition_with_delta_text_of_their_values():
    rows = {
        "n": [1, 2, 3, 4],
        "day": [DAY, None, DAY, DAY],
        "shop": ["a", "a", "a", "b/c d"],
        "open": [True, True, True, False],
    }
    found = list(_split(pa.record_batch(rows), ("day", "shop", "open")))
    assert {(json.dumps(values), tuple(part.column("n").to_pylist())) for values, part in found} == {
        ('{"day": "2026-01-02", "shop": "a", "open": "true"}', (1, 3)),
        ('{"day": null, "shop": "a", "open": "true"}', (2,)),
        ('{"day": "2026-01-02", "shop": "b/c d", "open": "false"}', (4,)),
    }


def test_a_task_with_many_partitions_has_few_files_open(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "_OPEN_FILES", 2)
    files = _Files(lambda: (LocalFileSystem(), str(tmp_path)), "ottla-x/0", "0-0", left_out=["n"])
    for n in range(5):
        files.write({"n": str(n)}, pa.record_batch({"n": [n], "v": [n]}))
    found = files.close()
    assert all(pq.read_schema(tmp_path / each["path"]).names == ["v"] for each in found)
    assert len({each["path"] for each in found}) == 5
    assert all((tmp_path / each["path"]).stat().st_size == each["size"] for each in found)
    assert [each["rows"] for each in found] == [1] * 5


@pytest.fixture
def pipeline(kafka, make_topic, tmp_path):
    topic = make_topic(partitions=2)
    found = Pipeline("shop", bootstrap_servers=kafka.bootstrap_servers, checkpoint=str(tmp_path / "checkpoints"))
    found.read_topic("orders", topic, value=Json(dict[str, int]), select=["value['n'] AS n"], maxOffsetsPerTrigger=8)
    found.sql("by_kind", "SELECT n, IF(n % 2 = 0, 'even', 'odd / ' || n) AS kind FROM orders")
    found.write_delta("by_kind", str(tmp_path / "lake-{version}"), name="lake", partition_by=["kind"])
    return found


def send(kafka, pipeline, numbers):
    topic = pipeline.streams()[0].topics
    for n in numbers:
        kafka.produce(topic, [json.dumps({"n": n})], partition=n % 2)


def run(pipeline, spark):
    with pipeline.start(spark, available_now=True) as running:
        running.await_end()


def forget_last_commit(pipeline, tmp_path):
    """As a driver that was killed between the table's commit and the checkpoint's."""
    commits = tmp_path / "checkpoints" / "shop" / pipeline.version / "lake" / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


@pytest.mark.spark
def test_each_batch_is_one_commit_and_is_passed_over_when_it_is_repeated(pipeline, spark, kafka, tmp_path):
    send(kafka, pipeline, range(20))
    run(pipeline, spark)
    assert "Delta table" in pipeline.describe()
    lake = str(tmp_path / "lake-v1")
    table = deltalake.DeltaTable(lake)
    version = table.version()
    assert version == 3  # made, and three batches
    assert sorted(polars.read_delta(lake)["n"].to_list()) == list(range(20))
    kinds = set(polars.read_delta(lake)["kind"].to_list())
    assert kinds == {"even", *(f"odd / {n}" for n in range(1, 20, 2))}
    forget_last_commit(pipeline, tmp_path)
    run(pipeline, spark)
    assert deltalake.DeltaTable(lake).version() == version
    send(kafka, pipeline, range(20, 24))
    run(pipeline, spark)
    assert sorted(polars.read_delta(lake)["n"].to_list()) == list(range(24))
    batch = pipeline.at(version="again")
    batch.batch(spark)
    assert sorted(polars.read_delta(str(tmp_path / "lake-again"))["n"].to_list()) == list(range(24))


@pytest.mark.spark
def test_a_batch_that_fails_before_its_commit_shows_nothing_and_leaves_no_file(
    pipeline, spark, kafka, tmp_path, monkeypatch
):
    send(kafka, pipeline, range(4))

    def fail(*arguments):
        raise OSError("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(module.DeltaLakeTable, "append", fail)
        with pytest.raises(PipelineFailed, match="the store is away"):
            run(pipeline, spark)
    lake = tmp_path / "lake-v1"
    orphans = set(lake.rglob("*.parquet"))
    assert orphans
    assert not (lake / "_delta_log").exists()
    run(pipeline, spark)
    assert sorted(polars.read_delta(str(lake))["n"].to_list()) == list(range(4))
    files = {str(lake / path) for path in deltalake.DeltaTable(str(lake)).to_pyarrow_dataset().files}
    assert not orphans & set(lake.rglob("*.parquet"))
    assert len(set(lake.rglob("*.parquet"))) == len(files)


@pytest.mark.spark
@pytest.mark.parametrize("moment", ["before it opens the table", "before it commits"])
def test_of_two_drivers_that_write_one_batch_one_commits_and_the_other_deletes_nothing(
    spark, tmp_path, monkeypatch, moment
):
    """As when a driver that was taken for dead wakes up: it began before the other one had committed."""
    lake = str(tmp_path / "lake")
    monkeypatch.setattr(table_writer, "query_id", lambda spark: "query-1")
    first = TableWriter(module.DeltaLakeTable(lake))
    first(spark.createDataFrame([(1,)], "n long"), 0)
    table = module.DeltaLakeTable(lake)
    late = TableWriter(table)
    name = "append" if moment == "before it opens the table" else "_evolve"
    then = getattr(table, name)

    def after_the_other(*arguments):
        monkeypatch.setattr(table, name, then)
        first(spark.createDataFrame([(2,)], "n long"), 1)
        return then(*arguments)

    monkeypatch.setattr(table, name, after_the_other)
    with pytest.raises(ConfigError, match="batch 1 of this query is in the table already"):
        late(spark.createDataFrame([(2,)], "n long"), 1)
    assert sorted(polars.read_delta(lake)["n"].to_list()) == [1, 2]


@pytest.mark.spark
def test_new_columns_are_added_and_other_types_and_partitions_are_refused(spark, tmp_path, monkeypatch):
    lake = str(tmp_path / "lake")
    monkeypatch.setattr(table_writer, "query_id", lambda spark: "query-1")
    append = TableWriter(module.DeltaLakeTable(lake))
    append(spark.createDataFrame([(1,)], "n long"), 0)
    append(spark.createDataFrame([(1,)], "n long"), 0)  # repeated
    append(spark.createDataFrame([(2, "two")], "n long, text string"), 1)
    append(spark.createDataFrame([(3,)], "n long"), 2)
    append(spark.createDataFrame([(4,)], "n long"), 2)  # repeated
    append(spark.createDataFrame([], "n long"), 3)
    rows = polars.read_delta(lake).sort("n").rows()
    assert rows == [(1, None), (2, "two"), (3, None)]
    with pytest.raises(ConfigError, match=r"found column n with .*long.*, wanted .*string"):
        append(spark.createDataFrame([("x",)], "n string"), 4)
    by_n = TableWriter(module.DeltaLakeTable(lake, partition_by=["n"]))
    with pytest.raises(ConfigError, match=r"found a table with partitions by \[\], wanted \['n'\]"):
        by_n(spark.createDataFrame([(5, "x")], "n long, text string"), 5)
    with pytest.raises(ConfigError, match="partition_by n: found a column of type double, wanted"):
        by_n(spark.createDataFrame([(5.0,)], "n double"), 6)
    assert polars.read_delta(lake).height == 3


@pytest.mark.spark
def test_rows_of_a_key_are_updated_inserted_and_deleted_by_the_newest_of_a_batch(spark, tmp_path, monkeypatch):
    lake = str(tmp_path / "lake")
    monkeypatch.setattr(table_writer, "query_id", lambda spark: "query-1")
    merge = TableWriter(module.DeltaLakeTable(lake), key=["id"], order_by="offset", delete="name IS NULL")
    schema = "id long, name string, offset long"

    def rows(*values, columns=schema):
        return spark.createDataFrame(list(values), columns)

    def table():
        return polars.read_delta(lake).sort("id").select("id", "name").rows()

    merge(rows((1, "a", 0), (1, "b", 2), (2, "c", 1), (3, "d", 3), (3, None, 4), (None, "no key", 5)), 0)
    assert table() == [(1, "b"), (2, "c")]
    merge(rows((2, None, 6), (3, "e", 7)), 1)
    assert table() == [(1, "b"), (3, "e")]
    merge(rows((1, "repeated", 8)), 1)
    assert table() == [(1, "b"), (3, "e")]
    merge(rows((3, "f", 9, True), columns=f"{schema}, is_new boolean"), 2)
    assert polars.read_delta(lake).sort("id").select("id", "name", "is_new").rows() == [(1, "b", None), (3, "f", True)]
    with pytest.raises(ConfigError, match="key and order_by need offset, and the view has id, name"):
        merge(rows((1, "x"), columns="id long, name string"), 3)


@pytest.mark.spark
def test_a_topic_is_a_table_by_key_and_a_repeated_batch_changes_nothing(spark, kafka, make_topic, tmp_path):
    topic = make_topic()
    lake = str(tmp_path / "lake")
    pipeline = Pipeline("people", bootstrap_servers=kafka.bootstrap_servers, checkpoint=str(tmp_path / "checkpoints"))
    select = ["CAST(key AS STRING) AS id", "CAST(value AS STRING) AS name", "offset"]
    pipeline.read_topic("names", topic, select=select, maxOffsetsPerTrigger=2)
    pipeline.write_delta("names", lake, name="lake", key=["id"], delete="name IS NULL")
    with pytest.raises(ConfigError, match="sink more: delete needs key="):
        pipeline.write_delta("names", lake, name="more", delete="name IS NULL")
    kafka.produce(topic, ["a", "b", "c", None, "e"], keys=["1", "2", "1", "2", "3"])
    for _ in range(2):
        run(pipeline, spark)
        assert polars.read_delta(lake).sort("id").select("id", "name").rows() == [("1", "c"), ("3", "e")]
        version = deltalake.DeltaTable(lake).version()
        assert version == 3
        commits = tmp_path / "checkpoints" / "people" / "v1" / "lake" / "commits"
        (commits / "2").unlink()
        (commits / ".2.crc").unlink(missing_ok=True)
