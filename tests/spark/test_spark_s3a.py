"""A pipeline with everything on an object store: S3A with jars from Maven, against gofakes3.

The driver is a process of its own, for jars are chosen when a JVM starts. The lock of a driver that was killed there is
waited for.
"""

from __future__ import annotations

import json

import pytest
from object_store import object_store
from s3a_jars import run_program, s3a_settings

import ottla.columnar
from ottla.errors import ConfigError
from ottla.spark import Pipeline
from ottla.spark.checkpoints import files
from ottla.spark.checkpoints.checkpoint import read_checkpoint
from ottla.spark.checkpoints.files import files_of
from ottla.spark.pipeline.launch import sinks_to_run

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

PROGRAM = """
import json, os, sys
from concurrent.futures import ThreadPoolExecutor
import ottla.spark
from ottla import Json
from ottla.errors import ConfigError
from ottla.spark import Pipeline
from ottla.spark.checkpoints.checkpoint import query_lock
from ottla.spark.checkpoints.files import files_of

step, topic, servers, lake, config = sys.argv[1:]
spark = ottla.spark.session("s3a", master="local[2]", config=json.loads(config), log_level="OFF")
pipeline = Pipeline("shop", bootstrap_servers=servers, checkpoint=f"{lake}/ck", dead_letters=f"{topic}.dead")
pipeline.read_topic("orders", topic, value=Json(dict[str, int]), select=["value['n'] AS n"])
pipeline.write_topic("orders", f"{topic}.out", name="out", value="CAST(n AS STRING)", delivery="exactly-once")
pipeline.write_parquet("orders", f"{lake}/out-{{version}}", name="lake")

def run(pipeline):
    with pipeline.start(spark, available_now=True) as running:
        running.await_end()

found = {}
if step == "killed":
    for name, place in (("created", lake), ("created_by_mount", "viewfs://lake/shop")):
        files = files_of(place)
        with ThreadPoolExecutor(8) as pool:
            found[name] = list(pool.map(lambda number: files.create(f"{place}/{name}", b"%d" % number), range(8)))
        assert files.is_create_conditional
    run(pipeline)
    found["lag"] = [each.records for each in pipeline.lag()]
    running = pipeline.start(spark)  # holds its locks
    try:
        pipeline.start(spark)
    except ConfigError as error:
        found["second"] = str(error).partition("(")[0]
    print("FOUND", json.dumps(found), flush=True)
    os._exit(1)  # as a kill would: nothing is released
run(pipeline)
again = pipeline.replay(spark, version="v2", only=["lake"])
pipeline.switch_over("v2", force=True)
found["rows"] = [spark.read.parquet(f"{lake}/out-{version}").count() for version in ("v1", "v2")]
print("FOUND", json.dumps(found), flush=True)
"""


@pytest.fixture
def drive(kafka, make_topic, s3a, tmp_path, monkeypatch):
    """Runs a step of the program, and returns what it found."""
    topic = make_topic(partitions=2)
    for name in ("dead", "out"):
        kafka.create_topic(f"{topic}.{name}")
    with object_store("gofakes3") as bucket:
        address = bucket.replace("s3:", "s3a:")
        config = s3a_settings(s3a) | {"spark.hadoop.fs.viewfs.mounttable.lake.link./shop": f"{address}/shop"}
        (tmp_path / "program.py").write_text(PROGRAM)

        def run(step):
            arguments = [step, topic, kafka.bootstrap_servers, f"{address}/shop", json.dumps(config)]
            return run_program(tmp_path / "program.py", *arguments)

        monkeypatch.setattr(files, "_session", lambda: None)  # here without Spark, as a command
        run.topic, run.lake = topic, f"{address}/shop"
        yield run


def test_a_pipeline_on_an_object_store_survives_its_driver(drive, kafka):
    kafka.produce(drive.topic, [json.dumps({"n": i}) for i in range(25)] + ["{"], partition=0)
    found = drive("killed")
    for name in ("created", "created_by_mount"):
        assert found[name].count(True) == 1  # by conditional requests, side by side
    assert set(found["lag"]) == {0}
    assert found["second"].endswith("a query is running on this checkpoint ")

    kafka.produce(drive.topic, [json.dumps({"n": i}) for i in range(25, 40)], partition=1)
    pipeline = Pipeline("shop", bootstrap_servers=kafka.bootstrap_servers, checkpoint=f"{drive.lake}/ck")
    pipeline.read_topic("orders", drive.topic)
    pipeline.write_each("orders", print, name="out")
    assert sum(each.records for each in pipeline.lag()) == 15

    assert drive("again")["rows"] == [40, 40]
    written = ottla.columnar.read(f"{drive.topic}.out", bootstrap_servers=kafka.bootstrap_servers).read_all()
    assert sorted(map(int, written.column("value").to_pylist())) == list(range(40))
    assert len(kafka.consume_all(f"{drive.topic}.dead")) == 1
    assert pipeline.live_version() == "v2"
    assert [sink.name for sink in sinks_to_run(pipeline.at(version="v2"), ())] == ["out"]
    assert read_checkpoint(pipeline.checkpoint_of("out")).unfinished is None
    with pytest.raises(ConfigError, match="no checkpoint of a Spark query"):
        read_checkpoint(f"{drive.lake}/nothing")
    assert files_of(drive.lake).read(f"{drive.lake}/created") == b"%d" % found["created"].index(True)
