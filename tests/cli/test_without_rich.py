"""rich draws the demo and nothing else: the command line works where it is not installed."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import importlib, json, pkgutil, sys

sys.modules["rich"] = None  # an import of it fails

import ottla.cli
from click.testing import CliRunner

for module in pkgutil.walk_packages(ottla.cli.__path__, "ottla.cli."):
    if not module.name.startswith("ottla.cli.demo."):
        importlib.import_module(module.name)


def run(*arguments):
    ended = CliRunner().invoke(ottla.cli.main, list(arguments))
    return [ended.exit_code, ended.output]


print(json.dumps({
    "help": {name: run(name, "--help")[0] for name in ottla.cli.main.list_commands(None)},
    "config": run("config", "explain", "--format", "table"),
    "explain": run("explain", "UnknownTopic"),
    "demo": run("demo", "--flights", "1"),
}))
"""


def test_every_command_but_the_demo_works_without_rich() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    found = json.loads(ended.stdout)
    assert len(found["help"]) > 20
    assert set(found["help"].values()) == {0}
    assert found["config"][0] == found["explain"][0] == 0
    assert "enable.idempotence" in found["config"][1]
    assert found["explain"][1].startswith("# UnknownTopic\n")
    code, output = found["demo"]
    assert code == 2
    assert "rich" in output
    assert "pip install 'ottla[demo]'" in output
