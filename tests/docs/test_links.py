"""Links between pages lead to files and headings that exist: the quick twin of the check of the built site."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
GENERATED = re.compile(r"reference/(api|cli)/.+\.md|reference/settings\.md|errors/index\.md")
"""Pages that are made from the code (tools/docs_site), below docs/."""


def prose_of(page: Path) -> str:
    return re.sub(r"^ *```.*?^ *```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


@cache
def anchors_of(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return {slug(title) for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def slug(title: str) -> str:
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", title)
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", words).strip().lower())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        aim = (page.parent / path).resolve() if path else page
        is_generated = aim.is_relative_to(DOCS) and GENERATED.fullmatch(aim.relative_to(DOCS).as_posix())
        if is_generated:
            continue
        if not aim.exists() or (anchor and anchor not in anchors_of(aim)):
            dead.append(target)
    assert dead == []
