"""The page on seeing and changing a cluster, followed literally; what it names exists."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import click
import pytest
from follow_page import follow

from ottla.cli import main

pytestmark = pytest.mark.complete

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "operate.md"


@pytest.mark.timeout(300)
def test_every_step_does_what_the_page_says(tmp_path: Path) -> None:
    assert follow(PAGE, tmp_path, Path(sys.executable).parent) >= 7


@pytest.mark.representative
def test_every_command_and_option_that_it_names_exists() -> None:
    named = re.findall(r"(?:`|\$ )(ottla [a-z][^`\n]*)", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 25
    for line in named:
        words = shlex.split(re.split(r" >|&&", line)[0])[1:]
        context, command = click.Context(main), main
        while words and isinstance(command, click.Group):
            found = command.get_command(context, words.pop(0))
            assert found is not None, line
            command = found
        options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= options, line
