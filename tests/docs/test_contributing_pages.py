"""The pages for contributors are followed literally: their files are written, their diffs applied, their tests run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.complete

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "contributing"
CODE = ("src", "broker_embedded", "tests/kit", "tools", "docs/reference")


@dataclass(frozen=True)
class Step:
    """A block of a page that has a title: a file to write, or a diff of one."""

    language: str
    path: str
    text: str


def steps_of(page: str) -> list[Step]:
    text = (PAGES / page).read_text(encoding="utf-8")
    blocks = re.findall(r'^```(python|diff) title="([^"]+)"\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
    return [Step(*block) for block in blocks]


def patched(text: str, diff: str) -> str:
    """`text` with the lines that the diff adds; its other lines must stand in the text, once and together."""
    before = "".join(line[1:] for line in diff.splitlines(keepends=True) if line[0] == " ")
    after = "".join(line[1:] for line in diff.splitlines(keepends=True))
    assert text.count(before) == 1, f"found {text.count(before)} times, wanted once:\n{before}"
    return text.replace(before, after)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The code without its history, to be changed."""
    for folder in CODE:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "tests/conftest.py"):
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def run(copy: Path, *command: str) -> str:
    paths = os.pathsep.join(str(copy / part) for part in ("src", "", "tests/kit"))
    done = subprocess.run(
        [sys.executable, *command],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": paths},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def follow(copy: Path, page: str) -> list[Path]:
    """Do what the page says; returns the files that it writes."""
    written = []
    for step in steps_of(page):
        path = copy / step.path
        if step.language == "diff":
            path.write_text(patched(path.read_text(encoding="utf-8"), step.text), encoding="utf-8")
        else:
            assert not path.exists(), f"{step.path} is there already: the page needs another example"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.text, encoding="utf-8")
            written.append(path)
    assert len(written) == 2, "a page writes one file of the product and one test"
    return written


@pytest.mark.parametrize("page", ["add-an-api.md", "add-a-command.md", "add-a-policy.md"])
def test_who_follows_the_page_gets_a_passing_test_and_clean_code(copy: Path, page: str) -> None:
    product, test = follow(copy, page)
    printed = run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test))
    assert re.search(r"\b[1-9]\d* passed", printed), printed
    changed = [str(copy / step.path) for step in steps_of(page)]
    run(copy, "-m", "ruff", "check", "--no-cache", *changed)
    run(copy, "-m", "ruff", "format", "--no-cache", "--check", *changed)
    imported = f"import {'.'.join(product.relative_to(copy).with_suffix('').parts).removeprefix('src.')} as it"
    assert run(copy, "-c", f"{imported}; print(it.__file__)").strip() == str(product), "the copy is not what ran"


def test_the_new_api_appears_in_the_reference_page(copy: Path) -> None:
    follow(copy, "add-an-api.md")
    run(copy, "tools/protocol_support.py")
    page = (copy / "docs" / "reference" / "protocol_support.md").read_text(encoding="utf-8")
    served, _, rest = page.partition("## Known to the codec only")
    assert "| DescribeDelegationToken | 41 |" in served
    assert "delegation tokens are not enabled" in rest


def test_the_new_command_is_listed_by_help(copy: Path) -> None:
    follow(copy, "add-a-command.md")
    assert "leaders" in run(copy, "-m", "ottla", "--help")


def test_the_examples_on_style_are_true() -> None:
    page = (PAGES / "style.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "style.md", "exec", dont_inherit=True), {"__name__": "style_page"})


TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
RUN = (ROOT / "tools" / "run").read_text(encoding="utf-8")
NAMES_TO_RUN = set(re.findall(r"^#   ([a-z-]+) ", RUN, re.MULTILINE))


@pytest.mark.representative
@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", *sorted(PAGES.glob("*.md"))], ids=lambda path: path.name)
def test_the_make_targets_that_are_named_exist(page: Path) -> None:
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= TARGETS


@pytest.mark.representative
@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.stem)
def test_the_names_for_tools_run_that_are_named_exist(page: Path) -> None:
    assert set(re.findall(r"tools/run ([a-z-]+)", page.read_text(encoding="utf-8"))) <= NAMES_TO_RUN


@pytest.mark.representative
def test_tools_run_lists_what_it_knows() -> None:
    assert set(re.findall(r"^([a-z-]+)\)", RUN, re.MULTILINE)) == NAMES_TO_RUN


@pytest.mark.representative
def test_make_help_names_every_target_and_these_are_ten() -> None:
    helped = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    assert set(re.findall(r"^make ([a-z-]+)", helped, re.MULTILINE)) == TARGETS - {"help"}
    assert len(TARGETS - {"help"}) == 10


@pytest.mark.representative
def test_the_fast_tests_of_make_check_exist() -> None:
    suite = (ROOT / "tools" / "suite").read_text(encoding="utf-8")
    (fast,) = re.findall(r"^fast_tests=\(([^)]+)\)$", suite, re.MULTILINE)
    paths = fast.split()
    assert len(paths) > 5
    assert [path for path in paths if not (ROOT / path).exists()] == []
