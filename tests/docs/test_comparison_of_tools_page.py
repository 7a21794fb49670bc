"""`docs/comparison-of-tools.md` has no empty cell, names a version for each tool, and links what it says of Ottla."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_tree import walked

from ottla.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "comparison-of-tools.md").read_text(encoding="utf-8")
TABLES = {
    heading: [[cell.strip() for cell in line.strip("|").split("|")] for line in lines.splitlines()]
    for heading, lines in re.findall(r"^## ([^\n]+)\n\n((?:\|[^\n]+\n)+)", PAGE, re.MULTILINE)
}
VERSIONS = dict(
    re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", PAGE.partition("| read |")[2].partition("## ")[0], re.MULTILINE)
)


@pytest.mark.parametrize("table", TABLES)
def test_each_row_has_a_cell_for_each_tool(table: str) -> None:
    header, _, *rows = TABLES[table]
    assert len(rows) >= 5
    assert [row[0] for row in rows if len(row) != len(header) or not all(row)] == []


@pytest.mark.parametrize("table", [name for name in TABLES if name != "Metrics and contracts"])
def test_each_tool_has_a_version_that_was_read(table: str) -> None:
    named = {tool.partition(",")[0] for tool in VERSIONS}
    assert set(TABLES[table][0][1:-1]) <= named


@pytest.mark.parametrize("table", TABLES)
def test_what_ottla_does_has_a_link_to_its_page(table: str) -> None:
    _, _, *rows = TABLES[table]
    says = {row[0]: row[-1] for row in rows}
    assert {
        what: cell for what, cell in says.items() if "](" not in cell and not cell.startswith(("none", "Python"))
    } == {}


def test_each_command_of_ottla_on_the_page_exists() -> None:
    commands = [f"{words} " for words, _ in walked(main)]
    named = set(re.findall(r"`ottla ([a-z][a-z -]*[a-z])", PAGE))
    assert named
    assert [
        name for name in named if not any(each.startswith(name.partition(" --")[0] + " ") for each in commands)
    ] == []
