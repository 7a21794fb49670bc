"""Iceberg tables without a jar: one commit for each micro-batch, passed over when repeated, nothing half visible."""

from __future__ import annotations

import json

import polars
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException

from ottla.errors import ConfigError
from ottla.serdes import Json
from ottla.spark import Pipeline, PipelineFailed
from ottla.spark.writing import iceberg as module
from ottla.spark.writing import table_writer
from ottla.spark.writing.table_writer import TableWriter

pytestmark = pytest.mark.spark


@pytest.fixture
def catalog(tmp_path):
    """The properties of a catalog: a database, and a folder for tables."""
    return {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}


@pytest.fixture
def of_one_query(monkeypatch):
    monkeypatch.setattr(table_writer, "query_id", lambda spark: "query-1")


def table_of(catalog, name):
    return load_catalog("default", **catalog).load_table(name)


def rows_of(catalog, name, *columns):
    """What PyIceberg, Polars and DuckDB see: the same."""
    table = table_of(catalog, name)
    by_iceberg = table.scan().to_arrow()
    wanted = list(columns) or by_iceberg.column_names
    by_polars = polars.scan_iceberg(table).collect().select(wanted).sort(wanted[0]).rows()
    assert by_polars == polars.from_arrow(by_iceberg).select(wanted).sort(wanted[0]).rows()
    with table.scan().to_duckdb("found") as duck:
        by_duckdb = duck.sql(f"SELECT {', '.join(wanted)} FROM found ORDER BY {wanted[0]}").fetchall()
    assert by_duckdb == by_polars
    return by_polars


@pytest.fixture(autouse=True)
def _polars_plans_with_pyiceberg(monkeypatch):
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


@pytest.fixture
def pipeline(kafka, make_topic, tmp_path, catalog):
    topic = make_topic(partitions=2)
    found = Pipeline("shop", bootstrap_servers=kafka.bootstrap_servers, checkpoint=str(tmp_path / "checkpoints"))
    found.read_topic("orders", topic, value=Json(dict[str, int]), select=["value['n'] AS n"], maxOffsetsPerTrigger=8)
    found.sql("by_kind", "SELECT n, IF(n % 2 = 0, 'even', 'odd / ' || n) AS kind FROM orders")
    found.write_iceberg("by_kind", "shop.lake_{version}", catalog=catalog, name="lake", partition_by=["kind"])
    return found


def send(kafka, pipeline, numbers):
    topic = pipeline.streams()[0].topics
    for n in numbers:
        kafka.produce(topic, [json.dumps({"n": n})], partition=n % 2)


def run(pipeline, spark):
    with pipeline.start(spark, available_now=True) as running:
        running.await_end()


def forget_last_commit(tmp_path, name="shop"):
    """As a driver that was killed between the table's commit and the checkpoint's."""
    commits = tmp_path / "checkpoints" / name / "v1" / "lake" / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


def files_below(tmp_path):
    return {f"file://{file}" for file in (tmp_path / "warehouse").rglob("*.parquet")}


def test_each_batch_is_one_commit_and_is_passed_over_when_it_is_repeated(pipeline, spark, kafka, tmp_path, catalog):
    send(kafka, pipeline, range(20))
    run(pipeline, spark)
    assert "Iceberg table shop.lake_v1, partitioned by kind, exactly once" in pipeline.describe()
    assert "sqlite" not in repr(pipeline)
    assert [n for n, _ in rows_of(catalog, "shop.lake_v1")] == list(range(20))
    snapshots = table_of(catalog, "shop.lake_v1").snapshots()
    assert [each.summary["ottla.batch"] for each in snapshots] == ["0", "1", "2"]
    kinds = {row["partition"]["kind"] for row in table_of(catalog, "shop.lake_v1").inspect.partitions().to_pylist()}
    assert kinds == {"even", *(f"odd / {n}" for n in range(1, 20, 2))}
    forget_last_commit(tmp_path)
    run(pipeline, spark)
    assert len(table_of(catalog, "shop.lake_v1").snapshots()) == 3
    send(kafka, pipeline, range(20, 24))
    run(pipeline, spark)
    assert [n for n, _ in rows_of(catalog, "shop.lake_v1")] == list(range(24))
    pipeline.at(version="again").batch(spark)
    assert [n for n, _ in rows_of(catalog, "shop.lake_again")] == list(range(24))


@pytest.mark.parametrize("away", ["the catalog", "the store"])
def test_a_catalog_or_store_that_is_away_costs_a_restart_and_no_row(
    pipeline, spark, kafka, tmp_path, monkeypatch, catalog, away
):
    send(kafka, pipeline, range(4))
    run(pipeline, spark)
    send(kafka, pipeline, range(4, 8))
    where = tmp_path / ("catalog.db" if away == "the catalog" else "warehouse")
    hidden = where.with_name("hidden")
    commit = module.IcebergTable._commit

    def while_it_is_away(*arguments):
        where.rename(hidden)
        try:
            return commit(*arguments)
        finally:
            if where.is_file():
                where.unlink()
            hidden.rename(where)

    with monkeypatch.context() as patch:
        patch.setattr(module.IcebergTable, "_commit", while_it_is_away)
        with pytest.raises(PipelineFailed):
            run(pipeline, spark)
    assert [n for n, _ in rows_of(catalog, "shop.lake_v1")] == list(range(4))
    known = {file["file_path"] for file in table_of(catalog, "shop.lake_v1").inspect.files().to_pylist()}
    assert files_below(tmp_path) - known, "nothing was written before"
    run(pipeline, spark)
    assert [n for n, _ in rows_of(catalog, "shop.lake_v1")] == list(range(8))
    known = {file["file_path"] for file in table_of(catalog, "shop.lake_v1").inspect.files().to_pylist()}
    assert files_below(tmp_path) == known


@pytest.mark.parametrize("moment", ["before it reads the number", "before it commits"])
def test_of_two_drivers_that_write_one_batch_one_commits_and_the_other_deletes_nothing(
    spark, monkeypatch, catalog, of_one_query, moment
):
    """As when a driver that was taken for dead wakes up: it began before the other one had committed."""
    first = TableWriter(module.IcebergTable("shop.lake", catalog=catalog))
    first(spark.createDataFrame([(1,)], "n long"), 0)
    late = TableWriter(module.IcebergTable("shop.lake", catalog=catalog))
    name = "_commit" if moment == "before it reads the number" else "_evolve"
    then = getattr(module.IcebergTable, name)

    def after_the_other(*arguments):
        monkeypatch.setattr(module.IcebergTable, name, then)
        first(spark.createDataFrame([(2,)], "n long"), 1)
        return then(*arguments)

    monkeypatch.setattr(module.IcebergTable, name, after_the_other)
    with pytest.raises(ConfigError, match="batch 1 of this query is in the table already"):
        late(spark.createDataFrame([(2,)], "n long"), 1)
    assert rows_of(catalog, "shop.lake") == [(1,), (2,)]


def test_a_commit_goes_behind_those_of_other_writers(spark, monkeypatch, catalog, of_one_query):
    ours = TableWriter(module.IcebergTable("shop.lake", catalog=catalog))
    ours(spark.createDataFrame([(1,)], "n long"), 0)
    evolve, others = module.IcebergTable._evolve, [2, 3]

    def after_another(*arguments):
        evolve(*arguments)
        if others:
            table = table_of(catalog, "shop.lake")
            table.append(table.scan().to_arrow().slice(0, 1).set_column(0, "n", [[others.pop()]]))

    monkeypatch.setattr(module.IcebergTable, "_evolve", after_another)
    ours(spark.createDataFrame([(4,)], "n long"), 1)
    assert rows_of(catalog, "shop.lake") == [(1,), (2,), (3,), (4,)]
    others += range(50, 50 + module._TRIES)
    with pytest.raises(CommitFailedException):
        ours(spark.createDataFrame([(5,)], "n long"), 2)


def test_new_columns_are_added_and_other_types_and_partitions_are_refused(spark, catalog, of_one_query):
    append = TableWriter(module.IcebergTable("shop.lake", catalog=catalog))
    append(spark.createDataFrame([(1,)], "n int"), 0)
    append(spark.createDataFrame([(1,)], "n int"), 0)  # repeated
    append(spark.createDataFrame([(2, "two")], "n long, text string"), 1)
    append(spark.createDataFrame([(3,)], "n long"), 2)
    append(spark.createDataFrame([(4,)], "n long"), 2)  # repeated
    append(spark.createDataFrame([], "n long"), 3)
    assert rows_of(catalog, "shop.lake", "n", "text") == [(1, None), (2, "two"), (3, None)]
    with pytest.raises(ConfigError, match=r"shop\.lake: .*n.*long.*string"):
        append(spark.createDataFrame([("x",)], "n string"), 4)
    with pytest.raises(ConfigError, match=r"found a table with partitions by \[\], wanted \['n'\]"):
        TableWriter(module.IcebergTable("shop.lake", catalog=catalog, partition_by=["n"]))(
            spark.createDataFrame([(5, "x")], "n long, text string"), 5
        )
    with pytest.raises(ConfigError, match="partition_by n: found a column of type double, wanted"):
        TableWriter(module.IcebergTable("shop.other", catalog=catalog, partition_by=["n"]))(
            spark.createDataFrame([(5.0,)], "n double"), 5
        )
    with pytest.raises(ConfigError, match="found table 'lake', wanted its namespace too"):
        module.IcebergTable("lake", catalog=catalog)
    assert len(rows_of(catalog, "shop.lake")) == 3


def test_values_of_every_type_come_back(spark, catalog, of_one_query):
    numbers = "CAST(1 AS BYTE) n, CAST(2 AS SHORT) s, 3 i, CAST(0.5 AS FLOAT) f, 0.25D d, CAST(1.25 AS DECIMAL(9,2)) m"
    times = "TIMESTAMP '2026-01-02 03:04:05+02:00' t, DATE '2026-01-02' day"
    select = f"SELECT {numbers}, {times}, true b, X'FF00' x, array('a', null) a"
    rows = spark.sql(f"{select}, repeat('k', 200) kind UNION ALL {select}, CAST(NULL AS STRING) kind")
    TableWriter(module.IcebergTable("shop.lake", catalog=catalog, partition_by=["kind", "day", "b", "n"]))(rows, 0)
    found = table_of(catalog, "shop.lake").scan().to_arrow().sort_by("kind").to_pylist()
    assert found[0] | {"kind": None} == found[1]
    assert found[0]["kind"] == "k" * 200
    assert (found[0]["t"].isoformat(), found[0]["x"], found[0]["a"], str(found[0]["m"])) == (
        "2026-01-02T01:04:05+00:00",
        b"\xff\x00",
        ["a", None],
        "1.25",
    )


def test_rows_of_a_key_are_updated_inserted_and_deleted_by_the_newest_of_a_batch(spark, catalog, of_one_query):
    merge = TableWriter(module.IcebergTable("shop.lake", catalog=catalog), key=["id"], delete="name IS NULL")
    schema = "id long, name string, offset long"

    def rows(*values, columns=schema):
        return spark.createDataFrame(list(values), columns)

    def table(*more):
        return rows_of(catalog, "shop.lake", "id", "name", *more)

    merge(rows((1, "a", 0), (1, "b", 2), (2, "c", 1), (3, "d", 3), (3, None, 4), (None, "no key", 5)), 0)
    assert table() == [(1, "b"), (2, "c")]
    merge(rows((2, None, 6), (3, "e", 7)), 1)
    assert table() == [(1, "b"), (3, "e")]
    merge(rows((1, "repeated", 8)), 1)
    assert table() == [(1, "b"), (3, "e")]
    merge(rows((3, "f", 9, True), columns=f"{schema}, is_new boolean"), 2)
    assert table("is_new") == [(1, "b", None), (3, "f", True)]
    merge(rows((1, None, 10), (3, None, 11)), 3)
    assert table() == []
    with pytest.raises(ConfigError, match="key and order_by need offset, and the view has id, name"):
        merge(rows((1, "x"), columns="id long, name string"), 4)


def test_a_key_may_have_several_columns_and_the_table_partitions(spark, catalog, of_one_query):
    merge = TableWriter(
        module.IcebergTable("shop.lake", catalog=catalog, partition_by=["shop"]),
        key=["shop", "day"],
        delete="n IS NULL",
    )

    def rows(*values):
        return spark.createDataFrame(list(values), "shop string, day string, n long, offset long").selectExpr(
            "shop", "CAST(day AS DATE) AS day", "n", "offset"
        )

    merge(rows(("a", "2026-01-01", 1, 0), ("a", "2026-01-02", 2, 1), ("b", "2026-01-01", 3, 2)), 0)
    merge(rows(("a", "2026-01-02", 20, 3), ("b", "2026-01-01", None, 4), ("b", "2026-01-02", 5, 5)), 1)
    assert (rows_of(catalog, "shop.lake", "n", "shop")) == [(1, "a"), (5, "b"), (20, "a")]


def test_a_topic_is_a_table_by_key_and_a_repeated_batch_changes_nothing(spark, kafka, make_topic, tmp_path, catalog):
    topic = make_topic()
    pipeline = Pipeline("people", bootstrap_servers=kafka.bootstrap_servers, checkpoint=str(tmp_path / "checkpoints"))
    select = ["CAST(key AS STRING) AS id", "CAST(value AS STRING) AS name", "offset"]
    pipeline.read_topic("names", topic, select=select, maxOffsetsPerTrigger=2)
    pipeline.write_iceberg("names", "shop.names", catalog=catalog, name="lake", key=["id"], delete="name IS NULL")
    with pytest.raises(ConfigError, match="sink more: delete needs key="):
        pipeline.write_iceberg("names", "shop.names", catalog=catalog, name="more", delete="name IS NULL")
    kafka.produce(topic, ["a", "b", "c", None, "e"], keys=["1", "2", "1", "2", "3"])
    snapshots = set()
    for _ in range(2):
        run(pipeline, spark)
        assert rows_of(catalog, "shop.names", "id", "name") == [("1", "c"), ("3", "e")]
        snapshots.add(len(table_of(catalog, "shop.names").snapshots()))
        forget_last_commit(tmp_path, "people")
    assert len(snapshots) == 1
