"""The examples in the help of `ottla pipeline`, one after the other on one pipeline."""

from __future__ import annotations

import shlex
import sys
from types import ModuleType

import pytest
from click.testing import CliRunner
from help_examples import examples_of_nouns

from ottla.cli import main
from ottla.spark import Pipeline
from ottla.spark.jvm import class_archive as archives

pytestmark = pytest.mark.spark

ORDER = ("pipeline describe", "pipeline run", "pipeline lag", "pipeline batch", "pipeline replay", "pipeline switch")
IN_ORDER = (*ORDER, "pipeline prepare", *(f"pipeline checkpoint {verb}" for verb in ("show", "set-offsets", "reset")))
"""What is written is there for what looks at it."""


def command_of(line):
    words = shlex.split(line)[1:]
    return " ".join(words[: 3 if words[1] == "checkpoint" else 2])


def test_the_examples_run(spark, kafka, make_topic, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    topic = make_topic("delays")
    kafka.produce(topic, [str(number) for number in range(10)])
    pipeline = Pipeline("delays", bootstrap_servers=kafka.bootstrap_servers, checkpoint=str(tmp_path / "checkpoints"))
    pipeline.read_topic("delays", topic, select=["CAST(value AS STRING) AS text"])
    pipeline.write_parquet("delays", str(tmp_path / "lake-{version}"), name="lake")
    package, module = ModuleType("reports"), ModuleType("reports.delays")
    package.delays, module.pipeline = module, pipeline
    monkeypatch.setitem(sys.modules, "reports", package)
    monkeypatch.setitem(sys.modules, "reports.delays", module)
    monkeypatch.setattr(archives, "class_archive", lambda java: tmp_path / "classes.jsa")  # made before

    lines = {line for _, line in examples_of_nouns("pipeline")}
    assert {command_of(line) for line in lines} == set(IN_ORDER)
    for line in sorted(lines, key=lambda line: (IN_ORDER.index(command_of(line)), line)):
        words = [topic if word == "delays" else word for word in shlex.split(line)[1:]]
        ended = CliRunner().invoke(main, words)
        assert ended.exit_code == 0, f"{line}\n{ended.output}\n{ended.stderr}"
