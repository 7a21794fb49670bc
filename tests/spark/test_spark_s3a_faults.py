"""A pipeline on S3A whose store is slow, refuses with 503, and drops connections: nothing is lost or written twice.

Through a proxy before gofakes3: each seventh request meets a fault, those of Hadoop, of Arrow and of Delta's library.
Then the store is gone in the middle of a query, and comes back.
"""

from __future__ import annotations

import json

import deltalake
import pytest
from object_store import object_store
from s3a_jars import run_program, s3a_settings
from store_proxy import Fault, each, store_proxy

import ottla.columnar

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.complete, pytest.mark.timeout(1_000)]

PROGRAM = """
import json, sys
from pathlib import Path
import pyarrow as pa
import ottla.columnar
import ottla.spark
from ottla import Json
from ottla.spark import Pipeline
from ottla.spark.checkpoints.checkpoint import read_checkpoint
from ottla.spark.pipeline.running import PipelineFailed

topic, servers, lake, config, folder = sys.argv[1:]
gone, calm = Path(folder, "gone"), Path(folder, "calm")
spark = ottla.spark.session("s3a", master="local[2]", config=json.loads(config), log_level="OFF")
pipeline = Pipeline("shop", bootstrap_servers=servers, checkpoint=f"{lake}/ck", dead_letters=f"{topic}.dead")
pipeline.read_topic("orders", topic, value=Json(dict[str, int]), select=["value['n'] AS n"], maxOffsetsPerTrigger=10)
pipeline.write_topic("orders", f"{topic}.out", name="out", value="CAST(n AS STRING)", delivery="exactly-once")
pipeline.write_parquet("orders", f"{lake}/out-{{version}}", name="lake")
pipeline.write_delta("orders", f"{lake}/delta-{{version}}", name="delta")

stopped_by = []

def until_done(call):  # as a supervisor does: Delta's library does not repeat every request
    while len(stopped_by) < 20:
        try:
            return call()
        except PipelineFailed as error:
            stopped_by.append(str(error))
    raise AssertionError(stopped_by)

def run():
    with pipeline.start(spark, available_now=True) as running:
        running.await_end()

def error_of(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None

until_done(run)
found = {
    "lag": sum(each.records for each in pipeline.lag()),
    "planned": sum(read.rows for read in pipeline.plan().reads),
    "batches": read_checkpoint(pipeline.checkpoint_of("out")).committed.number + 1,
}
calm.touch()
with pipeline.start(spark) as running:
    found["second"] = error_of(lambda: pipeline.start(spark))
    gone.touch()
    more = pa.table({"value": [json.dumps({"n": n}) for n in range(20, 30)]})
    ottla.columnar.write(topic, more, bootstrap_servers=servers)
    found["gone"] = error_of(lambda: running.await_end(timeout_s=200))
found["lag_while_gone"] = error_of(pipeline.lag)
found["start_while_gone"] = error_of(lambda: pipeline.start(spark))
gone.unlink()
calm.unlink()
until_done(run)
until_done(lambda: pipeline.replay(spark, version="v2", only=["lake", "delta"]))
found["restarts"] = len(stopped_by)
pipeline.switch_over("v2", force=True)
found["live"] = pipeline.live_version()
calm.touch()  # Spark's own reader of files does not repeat a request whose answer is cut
found["rows"] = [
    sorted(row.n for row in spark.read.parquet(f"{lake}/out-{version}").collect()) for version in ("v1", "v2")
]
print("FOUND", json.dumps(found), flush=True)
"""

IMPATIENT = {
    "attempts.maximum": 3,
    "retry.limit": 4,
    "retry.interval": "100ms",
    "retry.throttle.limit": 8,
    "retry.throttle.interval": "100ms",
}
"""S3A repeats requests for minutes by default."""


def test_nothing_is_lost_or_doubled_on_a_store_that_fails(kafka, make_topic, s3a, tmp_path):
    topic = make_topic(partitions=2)
    for name in ("dead", "out"):
        kafka.create_topic(f"{topic}.{name}")
    kafka.produce(topic, [json.dumps({"n": i}) for i in range(20)] + ["{"], partition=0)
    some = each(7, *Fault)

    def faults(number, method):
        if (tmp_path / "gone").exists():
            return Fault.DROPPED
        return None if (tmp_path / "calm").exists() else some(number, method)

    (tmp_path / "program.py").write_text(PROGRAM)
    with object_store("gofakes3") as bucket, store_proxy() as proxy:
        lake = f"{bucket.replace('s3:', 's3a:')}/shop"
        proxy.begin_again(faults)
        config = json.dumps(s3a_settings(s3a, **IMPATIENT))
        found = run_program(tmp_path / "program.py", topic, kafka.bootstrap_servers, lake, config, str(tmp_path))
        assert proxy.faults > 50
        proxy.begin_again(lambda number, method: None)
        for version in ("v1", "v2"):
            table = deltalake.DeltaTable(f"{lake}/delta-{version}").to_pyarrow_table()
            assert sorted(table.column("n").to_pylist()) == list(range(30))
    assert (found["lag"], found["planned"], found["batches"]) == (0, 0, 3)
    assert "a query is running on this checkpoint" in found["second"]
    assert found["gone"].startswith("PipelineFailed: shop, sink")
    assert "s3a://lake/shop" in found["gone"]
    for call in ("lag_while_gone", "start_while_gone"):
        assert found[call].startswith("ConfigError: s3a://lake/shop/ck"), found[call]
    assert found["live"] == "v2"
    assert found["rows"] == [list(range(30))] * 2
    written = ottla.columnar.read(f"{topic}.out", bootstrap_servers=kafka.bootstrap_servers).read_all()
    assert sorted(map(int, written.column("value").to_pylist())) == list(range(30))
    assert len(kafka.consume_all(f"{topic}.dead")) == 1
