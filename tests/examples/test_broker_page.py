"""The broker's reference page: its code runs, its tables are the program's own, its list of files is what there is."""

from __future__ import annotations

import re
import runpy
import types
from pathlib import Path
from typing import Any

import pytest
from click import Option

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.process import _parser
from ottla.cli.embedded.broker import start

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "broker.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_python_on_the_page_runs() -> None:
    program, is_code = [], False
    for line in TEXT.splitlines():
        if line.startswith("```"):
            is_code = line == "```python"
            line = ""
        program.append(line if is_code else "")
    assert len("".join(program)) > 500
    exec(compile("\n".join(program), str(PAGE), "exec", dont_inherit=True), vars(types.ModuleType("broker_page")))


@pytest.mark.complete
def test_the_tables_of_settings_are_current() -> None:
    tool: dict[str, Any] = runpy.run_path(str(ROOT / "tools" / "broker_settings.py"))
    written = TEXT.split(tool["BEGIN"])[1].split(tool["END"])[0]
    assert written == tool["render"](), "run: python tools/broker_settings.py"


def test_every_option_is_in_the_table_and_the_two_programs_have_the_same() -> None:
    documented = set(re.findall(r"^\| `(--[a-z-]+)", TEXT, re.M))
    of_module = {name for action in _parser()._actions for name in action.option_strings} - {"-h", "--help"}
    # With `--control` and a number, `ottla broker start` is about a broker of a cluster that runs already.
    of_command = {name for each in start.params if isinstance(each, Option) for name in each.opts} - {"--control"}
    assert documented == of_command == of_module | {"--advertise"}


@pytest.mark.parametrize("when", ["running", "stopped"])
def test_every_file_that_a_broker_makes_is_in_the_table(tmp_path: Path, when: str) -> None:
    rows = TEXT.split("## Files on disk")[1]
    cluster = EmbeddedCluster(data_dir=tmp_path)
    with cluster:
        cluster.create_topic("orders")
        found = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    if when == "stopped":
        found = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert found
    for name in found:
        suffix = name[20:] if name[:20].isdigit() else name
        assert f"{suffix}`" in rows, name
