"""What the README shows is what the repository has."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("README.md"))]


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_service_shown_is_the_example_that_is_tested():
    shown = python_blocks(ROOT / "README.md")[0]
    assert shown == (ROOT / "examples" / "service.py").read_text(encoding="utf-8")


def dead_links(page: Path) -> list[str]:
    prose = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)  # Json[Order](Order)
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose)
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    # What is made from the code stands in the built site only; tests/docs/site/test_site.py follows its links.
    made_for_the_site = re.compile(rf"{ROOT}/docs/(errors/index\.md|reference/(api/|cli/|settings\.md))")
    return [link for link in missing if not made_for_the_site.match(str((page.parent / link).resolve()))]


def test_every_link_to_a_file_leads_somewhere():
    dead = {str(page.relative_to(ROOT)): links for page in PAGES if (links := dead_links(page))}
    assert not dead


def test_the_two_commands_of_the_readme_are_targets_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = re.findall(r"^\| `make (\w+)`", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert commands == ["demo", "test"]
    for command in commands:
        assert re.search(rf"^{command}:", makefile, re.MULTILINE)


def test_ci_runs_the_test_command_of_the_readme_and_then_the_complete_tests():
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    commands = [line for line in lines if line and not line.startswith("#")]
    assert commands == [
        "set -euo pipefail",
        'cd "$(dirname "$0")/.."',
        "make test SUITE=--rerun",
        "exec tools/suite complete --rerun",
    ]
