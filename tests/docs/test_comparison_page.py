"""Whoever reads `docs/comparison.md` finds every test and every script that it names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "comparison.md").read_text()
TESTS = sorted(set(re.findall(r"`([\w/]+\.py(?:::\w+)+)`", PAGE)))
SCRIPTS = sorted(set(re.findall(r"`([\w./]+\.py)`", PAGE)))


def names_in(file: Path) -> set[str]:
    """Its tests, as `function` and as `Class::function`."""
    found: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            functions = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}::{each.name}" for each in functions}
    return found


@pytest.mark.parametrize("named", TESTS)
def test_a_test_that_is_named_exists(named: str) -> None:
    file, _, name = named.partition("::")
    assert name in names_in(ROOT / "tests" / file)


@pytest.mark.parametrize("named", SCRIPTS)
def test_a_script_that_is_named_exists(named: str) -> None:
    assert (ROOT / "benchmarks" / "hazards" / named).resolve().is_file()


def test_every_script_is_on_the_page() -> None:
    scripts = {path.name for path in (ROOT / "benchmarks" / "hazards").glob("*.py") if not path.name.startswith("_")}
    assert scripts <= set(SCRIPTS)


def test_every_row_that_shows_a_script_says_what_ottla_does() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    hazards = [cells for cells in rows if len(cells) == 5 and cells[0] not in ("what happens", "")]
    assert len(hazards) >= 20
    assert [cells[0] for cells in hazards if not cells[3] or "::test_" not in cells[4]] == []


def test_rates_stand_in_the_page_of_benchmarks_only() -> None:
    """A figure in two places is soon two figures."""
    assert re.findall(r"Ottla ÷|records/s|per s \|", PAGE) == []
    headings = re.findall(r"^## (.+)$", (ROOT / "docs" / "benchmark-results.md").read_text(), re.MULTILINE)
    named = re.findall(r"benchmark-results\.md#([a-z-]+)", PAGE)
    assert named
    assert set(named) <= {heading.lower().replace(" ", "-") for heading in headings}
