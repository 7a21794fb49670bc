"""The files of JSON schemas that come with the package: one for each schema that a command prints, and no other."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest
from command_output import validator

import ottla.cli

FILES = sorted(each.name for each in files("ottla.cli").joinpath("schemas").iterdir())
SOURCES = Path(ottla.cli.__file__).parent
NEVER_JSON = {"topics.partitions/1", "topics.groups/1"}
"""Parts of a table: as JSON they stand in `ottla.topics.show/1`."""


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
