"""The files of JSON schemas that come with the package: one for each schema that a command prints, and no other."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest
from command_output import validator
from command_tree import walked

import ottla.cli
from ottla.cli import main

FILES = sorted(each.name for each in files("ottla.cli").joinpath("schemas").iterdir())
SOURCES = Path(ottla.cli.__file__).parent
NEVER_JSON = {"topics.partitions/1", "topics.groups/1", "pipeline.partitions/1"}
"""Parts of a table: as JSON they stand in `ottla.topics.show/1` and `ottla.pipeline.checkpoint.show/1`."""


WITHOUT_A_FORMAT = {
    "apply export": "prints a file of TOML",
    "asyncapi show": "prints a document of JSON, whose schema is AsyncAPI's",
    "bridge amqp": "runs until it is stopped",
    "bridge mqtt": "runs until it is stopped",
    "broker": "commands of the embedded broker; its control API answers in JSON",
    "cluster facts": "prints a file of JSON",
    "completion": "prints a script",
    "console": "runs until it is stopped",
    "demo": "shows how it goes, to people",
    "explain": "prints a page of the documentation",
    "exporter": "serves Prometheus' text, or prints it",
    "new": "says what it wrote, to people",
    "outbox relay": "runs until it is stopped",
    "pipeline batch": "Spark's work; programs import the pipeline, and get a report",
    "pipeline checkpoint reset": "says what it moved away",
    "pipeline checkpoint set-offsets": "asks, and says what it changed",
    "pipeline describe": "prints the definition, to people",
    "pipeline prepare": "says what it made",
    "pipeline run": "runs until it is stopped",
    "pipeline switch": "says what is live",
    "registry": "runs until it is stopped; its answers are JSON",
    "run": "runs until it is stopped",
    "schedule run": "runs until it is stopped",
}
"""Commands, or groups of them, without `--format`, and why."""


def test_every_command_with_a_result_prints_it_as_json() -> None:
    without = {
        path for path, command in walked(main) if not any("--format" in parameter.opts for parameter in command.params)
    }
    excused = {path for path in without for name in WITHOUT_A_FORMAT if f"{path} ".startswith(f"{name} ")}
    assert sorted(without - excused) == []
    unused = [name for name in WITHOUT_A_FORMAT if not any(f"{path} ".startswith(f"{name} ") for path in without)]
    assert unused == []


def printed() -> set[str]:
    """The schemas that the commands name."""
    found = {"record/1"}
    for path in SOURCES.rglob("*.py"):
        found |= set(re.findall(r'"((?:[a-z]+[.])*[a-z-]+/1)"', path.read_text("utf-8")))
    return {each.removeprefix("ottla.") for each in found} - NEVER_JSON


def test_every_schema_that_is_printed_has_a_file() -> None:
    there = {name.removesuffix(".json").replace("-1", "/1") for name in FILES}
    plans = {f"plan.{verb}/1" for verb in ("rebalance", "add-brokers", "remove-brokers", "replication-factor", "dirs")}
    assert there - plans - {"plan.leaders/1"} == printed()


@pytest.mark.parametrize("name", FILES)
def test_a_schema_is_one_and_names_itself(name: str) -> None:
    schema = "ottla." + name.removesuffix("-1.json") + "/1"
    assert validator(schema).schema["title"] == schema
    assert not validator(schema).is_valid({"schema": "ottla.other/1", "items": []})
    text = files("ottla.cli").joinpath("schemas", name).read_text("utf-8")
    assert text == json.dumps(json.loads(text), indent=1) + "\n", "a change is one line of a diff"
