"""`engine="jvm"` and `engine="python"` give the same rows, where Spark's own connector can be had.

The connector comes from Maven Central into a temporary folder. It must be of Spark's exact version, and needs a JVM of
its own: jars are chosen when a JVM starts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import spark_connector

from ottla.spark import JavaMissing, find_java

pyspark = pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.real_kafka, pytest.mark.slow, pytest.mark.timeout(600)]

PROGRAM = """
import json, sys
import ottla.spark
from ottla import Json

topic, servers, jars, folder, secret, secure_servers, security = sys.argv[1:]
spark = ottla.spark.session("engines", master="local[2]", config={"spark.jars": jars}, log_level="OFF")
found = {}
for engine in ("jvm", "python", "auto"):
    frame = ottla.spark.read(
        spark, topic, bootstrap_servers=servers, engine=engine, includeHeaders=True, startingOffsets="earliest"
    )
    rows = frame.orderBy("partition", "offset").selectExpr(
        "hex(key)", "hex(value)", "topic", "partition", "offset", "timestamp", "timestampType", "to_json(headers)"
    )
    found[engine] = [[str(v) for v in row] for row in rows.collect()]
    found[engine + " types"] = [f.simpleString() for f in frame.schema.fields]
    # The same stream, in several micro-batches.
    stream = ottla.spark.read_stream(
        spark, topic, bootstrap_servers=servers, engine=engine, checkpoint=f"{folder}/{engine}",
        startingOffsets="earliest", maxOffsetsPerTrigger=60,
    )
    query = stream.writeStream.format("memory").queryName(engine).option("checkpointLocation", f"{folder}/{engine}")
    query.trigger(availableNow=True).start().awaitTermination(120)
    streamed = spark.table(engine).orderBy("partition", "offset").selectExpr("partition", "offset", "hex(value)")
    found[engine + " stream"] = [[str(v) for v in row] for row in streamed.collect()]
    # A password and a certificate, by the same names.
    given = {f"kafka.{name}": value for name, value in json.loads(security).items()}
    private = ottla.spark.read(spark, secret, bootstrap_servers=secure_servers, engine=engine, **given)
    found[engine + " private"] = sorted(bytes(row.value).decode() for row in private.select("value").collect())
decoded = ottla.spark.read(spark, topic, bootstrap_servers=servers, engine="jvm", value=Json(dict[str, int]))
found["bad"] = ottla.spark.split(decoded)[1].count()
auto = ottla.spark.read(spark, topic, bootstrap_servers=servers, engine="auto")
found["is jvm"] = "ottla" not in auto._jdf.queryExecution().analyzed().toString()
print("FOUND " + json.dumps(found))
"""


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    try:
        find_java()
    except JavaMissing as error:
        pytest.skip(f"needs Java: {error}")
    try:
        return spark_connector.jars(pyspark.__version__, tmp_path_factory.mktemp("jars"))
    except spark_connector.Unavailable as error:
        pytest.skip(f"needs {error} (`tools/run spark-oldest` has a PySpark whose connector is there)")


def test_both_engines_give_the_same_rows_and_types(jars, kafka, make_topic, make_secure_kafka, tmp_path):
    topic = make_topic(partitions=3)
    for p in range(3):
        kafka.produce(
            topic,
            [json.dumps({"n": i}) if i % 10 else "bad" for i in range(50)],
            keys=[f"k{i}" for i in range(50)],
            headers=[("p", str(p).encode())],
            partition=p,
        )
    secure = make_secure_kafka("SASL_SSL", mechanism="SCRAM-SHA-512", client_auth="required")
    secret = secure.create_topic("secret")
    secure.produce(secret, ["a", "b"])
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    arguments = [sys.executable, str(program), topic, kafka.bootstrap_servers, ",".join(map(str, jars))]
    arguments += [str(tmp_path), secret, secure.bootstrap_servers, json.dumps(secure.settings)]
    ran = subprocess.run(arguments, capture_output=True, text=True, timeout=560, check=False)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, ran.stdout[-2_000:] + ran.stderr[-4_000:]
    found = json.loads(lines[0].removeprefix("FOUND "))
    assert len(found["python"]) == 150
    assert found["jvm"] == found["python"] == found["auto"]
    assert found["jvm types"] == found["python types"]
    assert found["jvm stream"] == found["python stream"] == [[p, o, value] for _, value, _, p, o, *_ in found["python"]]
    assert found["jvm private"] == found["python private"] == ["a", "b"]
    assert found["bad"] == 15
    assert found["is jvm"]
