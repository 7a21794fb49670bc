"""A pipeline whose checkpoint only Hadoop can read, as on HDFS or S3A: lag, replay, switch, lock, kept offsets."""

from __future__ import annotations

import json

import pytest

import ottla.spark
from ottla.errors import ConfigError
from ottla.serdes import Json
from ottla.spark import Pipeline
from ottla.spark.checkpoints import checkpoint as module
from ottla.spark.checkpoints import foreign_files
from ottla.spark.checkpoints.checkpoint import query_lock, read_checkpoint
from ottla.spark.checkpoints.checkpoint_edit import reset, set_offsets
from ottla.spark.checkpoints.files import files_of
from ottla.spark.checkpoints.foreign_files import HadoopFiles
from ottla.spark.checkpoints.lease import lease

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def short_leases(monkeypatch):
    """A lock on `viewfs` watches itself for two thirds of its lease."""
    monkeypatch.setattr(module, "lease", lambda *where: lease(*where, lease_s=3))


@pytest.fixture
def pipeline(kafka, make_topic, lake, spark):
    topic, dead = make_topic(), make_topic("dead")
    kafka.produce(topic, [json.dumps({"n": i}) for i in range(5)] + ["{"])
    found = Pipeline("shop", bootstrap_servers=kafka.bootstrap_servers, checkpoint=f"{lake}/ck", dead_letters=dead)
    found.read_topic("orders", topic, value=Json(dict[str, int]), select=["value['n'] AS n"])
    found.write_parquet("orders", f"{lake}/out-{{version}}", name="lake")
    return found


def run(pipeline, spark):
    with pipeline.start(spark, available_now=True) as running:
        running.await_end()


def test_files_of_hadoop_are_read_written_created_once_and_moved(spark, lake):
    files = files_of(lake)
    assert isinstance(files, HadoopFiles)
    assert (files.read(f"{lake}/a"), files.names(f"{lake}/none")) == (None, [])
    files.write(f"{lake}/below/a", b"one")
    files.write(f"{lake}/below/a", b"\x00two")
    assert (files.read(f"{lake}/below/a"), files.read(f"{lake}/below")) == (b"\x00two", None)
    assert files.create(f"{lake}/below/b", b"b")
    assert not files.create(f"{lake}/below/b", b"c")
    assert files.read(f"{lake}/below/b") == b"b"
    files.move(f"{lake}/below", f"{lake}/moved")
    assert files.names(f"{lake}/moved") == ["a", "b"]
    files.delete(f"{lake}/moved")
    assert files.names(lake) == []
    with pytest.raises(ConfigError, match="viewfs://nowhere/x"):
        files.read("viewfs://nowhere/x")


def test_two_that_write_a_file_at_the_same_moment_do_not_share_a_scratch_file(spark, lake, monkeypatch):
    files = files_of(lake)
    put = files._put

    def put_beside_another(*arguments):
        put(*arguments)
        monkeypatch.setattr(files, "_put", put)
        files.write(f"{lake}/a", b"two")

    monkeypatch.setattr(files, "_put", put_beside_another)
    files.write(f"{lake}/a", b"one")
    assert (files.read(f"{lake}/a"), files.names(lake)) == (b"one", ["a"])


def test_only_file_systems_that_create_in_one_step_are_trusted_with_a_lock(spark, lake):
    assert not files_of(lake).is_create_conditional
    assert files_of("hdfs://127.0.0.1:1/lake").is_create_conditional
    assert files_of("webhdfs://127.0.0.1:1/lake").is_create_conditional
    with pytest.raises(ConfigError, match="none://lake"):
        _ = files_of("none://lake").is_create_conditional


def test_a_lock_on_viewfs_is_that_of_the_file_system_which_is_mounted(spark, lake, monkeypatch):
    """As if the local one created in one step."""
    monkeypatch.setattr(foreign_files, "_CREATES", ("file",))
    files = files_of(f"{lake}/ck")
    assert not files.is_create_conditional  # no folder yet
    assert files.create(f"{lake}/ck/lock/1", b"1")
    assert not files.create(f"{lake}/ck/lock/1", b"2")
    assert files.is_create_conditional
    assert files.read(f"{lake}/ck/lock/1") == b"1"


def test_a_file_that_is_replaced_while_it_is_read_is_read_again(spark, lake, tmp_path, monkeypatch):
    """Between a file and its checksum, as a lock is beside its watcher."""
    files, there, attempts = files_of(lake), tmp_path / "lake" / "a", []
    files.write(f"{lake}/a", b"new")
    there.write_bytes(b"old")
    content_now = files._content_now

    def read(*arguments):
        attempts.append(1)
        if len(attempts) == 2:
            there.write_bytes(b"new")
        return content_now(*arguments)

    monkeypatch.setattr(files, "_content_now", read)
    assert files.read(f"{lake}/a") == b"new"
    assert len(attempts) == 2


def test_lag_replay_and_switch_know_what_was_read(pipeline, spark, kafka, lake):
    run(pipeline, spark)
    assert [each.records for each in pipeline.lag()] == [0, 0]
    assert all(read.rows == 0 for read in pipeline.plan().reads)
    again = pipeline.replay(spark, version="v2")
    assert pipeline.live_version() == "v1"
    pipeline.switch_over("v2")
    assert again.live_version() == "v2"
    assert sorted(row.n for row in spark.read.parquet(f"{lake}/out-v2").collect()) == list(range(5))
    assert len(kafka.consume_all(pipeline.dead_letters)) == 1
    location = pipeline.checkpoint_of("lake")
    assert read_checkpoint(location).committed.number == 0
    set_offsets(location, {next(iter(read_checkpoint(location).position)): 3})
    assert [each.records for each in pipeline.lag() if each.sink == "lake"] == [3]
    reset(location)
    assert [each.records for each in pipeline.lag() if each.sink == "lake"] == [6]


def test_an_exactly_once_sink_keeps_its_topic_and_prefix_beside_the_checkpoint(
    pipeline, spark, kafka, make_topic, lake
):
    out = make_topic("out")

    def declared(topic=out, **options):
        again = Pipeline("once", bootstrap_servers=kafka.bootstrap_servers, checkpoint=f"{lake}/ck")
        again.read_topic("orders", pipeline.streams()[0].topics, select=["CAST(value AS STRING) AS value"])
        again.write_topic("orders", topic, name="once", delivery="exactly-once", **options)
        return again

    for _ in range(2):
        run(declared(), spark)
    path = f"{declared().checkpoint_of('once')}/ottla-sink.json"
    assert json.loads(files_of(path).read(path)) == {"topic": out, "transactionalIdPrefix": "ottla"}
    for other in (declared(topic=make_topic("other")), declared(transactionalIdPrefix="other")):
        with pytest.raises(ConfigError, match=r"found '.*other.*', wanted '.*', with which this checkpoint"):
            run(other, spark)


def test_a_second_start_on_the_same_checkpoint_is_refused(pipeline, spark, monkeypatch):
    monkeypatch.setattr(module, "lease", lambda *where: lease(*where, lease_s=1))  # a beat in a third of it
    with query_lock(pipeline.checkpoint_of("lake")):
        monkeypatch.setattr(module, "lease", lambda *where: lease(*where, lease_s=12))
        with pytest.raises(ConfigError, match="a query is running on this checkpoint"):
            pipeline.start(spark, only=["lake"])


def test_a_stream_of_your_own_keeps_its_first_offsets_there(spark, kafka, make_topic, lake):
    topic = make_topic()
    kafka.produce(topic, ["before"])

    def read():
        return ottla.spark.read_stream(
            spark, topic, bootstrap_servers=kafka.bootstrap_servers, checkpoint=f"{lake}/own", startingOffsets="latest"
        )

    read()
    kafka.produce(topic, ["after"])  # the first start ended before its first batch
    rows = []
    query = (
        read()
        .writeStream.foreachBatch(lambda batch, _: rows.extend(bytes(row.value) for row in batch.collect()))
        .option("checkpointLocation", f"{lake}/own")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(200)
    assert rows == [b"after"]
