"""Dead letters of a pipeline in the tools for those of a service: listed, shown, and sent back whence they came."""

from __future__ import annotations

import pyarrow as pa
import pytest
from click.testing import CliRunner

import ottla.columnar
from ottla.cli import main
from ottla.columnar.arrays.schema import HEADERS
from ottla.columnar.values.decoding import decoder_for
from ottla.serdes import Json
from ottla.spark.values.dead_letter_rows import build_batch
from ottla.spark.values.decoding import decode_batch

pytest.importorskip("pyspark")


def test_a_pipelines_dead_letters_are_listed_and_redriven_like_any_other(kafka, make_topic):
    origin, dead = make_topic("sales"), make_topic("dead")
    kafka.produce(origin, [b"17", b"{"], keys=["a", "b"], headers=[("trace", b"abc"), ("trace", None)])
    source = ottla.columnar.read(origin, bootstrap_servers=kafka.bootstrap_servers).read_all().combine_chunks()
    (batch,) = source.to_batches()
    decoded = decode_batch(batch, {"value": decoder_for(Json(int))})
    bad = decoded.filter(decoded.column("_error").is_valid())
    columns = {name: bad.column(name) for name in bad.schema.names if name not in ("key", "value", "_raw")}
    columns |= {part: pa.array([row[part] for row in bad.column("_raw").to_pylist()]) for part in ("key", "value")}
    assert columns["headers"].type == HEADERS
    letters = build_batch(pa.RecordBatch.from_pydict(columns), pipeline="sales-v1", now_ms=1_700_000_000_000)
    ottla.columnar.write(dead, letters, bootstrap_servers=kafka.bootstrap_servers)

    def run(*arguments):
        environment = {"OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "COLUMNS": "160"}
        done = CliRunner().invoke(main, ["dlq", *arguments], env=environment)
        assert done.exit_code == 0, done.output
        return done.output

    listed = run("list", dead, "--group", "sales-v1", "--kind", "malformed")
    assert f"{dead}: 1 dead letters" in listed
    assert f"{origin}-0@1" in listed
    assert "sales-v1" in run("show", dead, "0:0")
    assert "1 sent" in run("redrive", dead, "--yes")
    back = kafka.consume_all(origin, at_least=3)[-1]
    assert (back.raw_key, back.raw_value) == (b"b", b"{")
    assert back.headers[:2] == [("trace", b"abc"), ("trace", None)]
