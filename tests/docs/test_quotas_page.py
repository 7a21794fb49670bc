"""The page on quotas runs, and names the quotas and the options that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from broker_embedded.quotas.names import OF_ADDRESSES, OF_CLIENTS
from ottla.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "quotas.md").read_text(encoding="utf-8")


def test_the_example_runs_and_its_producer_is_held(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "quotas.md", "exec", dont_inherit=True), {"__name__": "quotas_page"})
    printed = re.search(r"Throttling\(times=(\d+), total_ms=(\d+), last_ms=\d+\)", capsys.readouterr().out)
    assert printed is not None
    assert int(printed[1]) >= 1
    assert int(printed[2]) > 19_000


def test_the_table_has_every_quota() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == [*OF_CLIENTS, *OF_ADDRESSES]


def test_the_options_are_those_of_the_command() -> None:
    known = {
        option
        for command in ("list", "set", "remove")
        for option in re.findall(r"--[\w-]+", CliRunner().invoke(main, ["quotas", command, "--help"]).output)
    }
    named = set(re.findall(r"--[a-z][\w-]+", PAGE))
    assert named
    assert named <= known
