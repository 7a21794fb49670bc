"""The page on schemas: its commands run in their order, and it names the options and variables that there are."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from help_examples import commands_of

from ottla.cli import main
from ottla.serdes import SchemaRegistry
from ottla.serdes.compatibility_levels import LEVELS
from ottla.testing.registry import EmbeddedRegistry

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "schemas.md").read_text(encoding="utf-8")
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
WIDER = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}
WIDEST = {**WIDER, "fields": [*WIDER["fields"], {"name": "more", "type": "string", "default": ""}]}
SERVICE = """
from ottla import App, Avro

app = App("billing")

@app.handler("orders", value=Avro("order.avsc", registry={url!r}))
def on_order(order: dict) -> None: ...
"""


def test_the_commands_run_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "billing", raising=False)
    lines = re.findall(r"^\$ (ottla schemas .+)$", PAGE, re.MULTILINE)
    assert len(lines) > 10
    with EmbeddedRegistry() as running:
        registry = SchemaRegistry(running.url)
        for each in (ORDER, WIDER):
            registry.register("orders-value", json.dumps(each))
        Path("order.avsc").write_text(json.dumps(WIDER))
        Path("wider.avsc").write_text(json.dumps(WIDEST))
        Path("billing.py").write_text(SERVICE.format(url=running.url))
        for line in lines:
            ended = CliRunner().invoke(main, shlex.split(line)[1:], env={"OTTLA_REGISTRY": running.url})
            assert ended.exit_code == 0, f"{line}: {ended.output}"
        assert registry.versions("orders-value") == [4, 5, 6]


def test_the_options_and_variables_are_those_of_the_commands() -> None:
    known = {option for _, command in commands_of("schemas") for each in command.params for option in each.opts}
    known |= {"--write"}  # of the console
    variables = {each.envvar for _, command in commands_of("schemas") for each in command.params}
    secrets = {f"OTTLA_REGISTRY_{name}" for name in ("PASSWORD", "TOKEN", "KEY_PASSWORD")}
    assert set(re.findall(r"--[a-z][\w-]+", PAGE)) <= known
    assert set(re.findall(r"OTTLA_REGISTRY\w*", PAGE)) == secrets | {name for name in variables if name is not None}


def test_the_table_has_every_level() -> None:
    named = set(re.findall(r"^\| `([A-Z]+)`", PAGE, re.MULTILINE))
    assert named == {each.removesuffix("_TRANSITIVE") for each in LEVELS}
