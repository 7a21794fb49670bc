"""The page on permissions runs, and names the options that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "permissions.md").read_text(encoding="utf-8")


def test_the_example_runs_and_the_client_is_told_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "permissions.md", "exec", dont_inherit=True), {"__name__": "permissions_page"})
    captured = capsys.readouterr()
    printed = captured.out
    assert "3 ACLs created" in captured.err
    (told,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    *_, remedy = " ".join(told.split()).split("; ")
    assert remedy in printed
    assert re.search(r"refused User:billing \((TOPIC|CLUSTER)_AUTHORIZATION_FAILED", printed), printed


def test_the_options_are_those_of_the_command() -> None:
    known = {
        option
        for command in ("list", "create", "delete")
        for option in re.findall(r"--[a-z][\w-]+", CliRunner().invoke(main, ["acls", command, "--help"]).output)
    }
    named = set(re.findall(r"`(--[a-z][\w-]+)", PAGE))
    assert {"--producer", "--dry-run"} <= named
    assert named <= known
    assert known - {"--help"} <= set(re.findall(r"--[a-z][\w-]+", PAGE))
