"""The pictures of the landing page come from runs, load nothing, and are all shown."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import docs_pictures
import pytest

pytestmark = pytest.mark.complete

DOCS = Path(__file__).parents[2] / "docs"
PICTURES = sorted((DOCS / "pictures").glob("*.svg"))
DRAWN = {"failures"}
"""Pictures that are drawn from facts of other pages (tools/failure_picture.py), not from a run."""


def words_of(svg: str) -> str:
    return unescape(re.sub(r"<[^>]+>", " ", svg)).replace("\xa0", " ")


def test_the_landing_page_shows_each_with_words_for_those_who_do_not_see() -> None:
    shown = re.findall(r"!\[([^\]]+)\]\(pictures/(\w+)\.svg\)", (DOCS / "index.md").read_text(encoding="utf-8"))
    pictures = {path.stem for path in PICTURES if not path.stem.startswith("badge-")}
    assert {name for _, name in shown} == pictures == set(docs_pictures.SCENES) | DRAWN
    assert all(len(words) > 20 for words, _ in shown)


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_a_picture_is_well_formed_and_loads_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text) == []
    assert "@font-face" not in text


def test_the_scene_of_brokers_runs_and_shows_the_death(tmp_path: Path) -> None:
    lines = docs_pictures.broker(tmp_path)
    words = words_of(docs_pictures.draw("Brokers", lines))
    assert "$ ottla broker kill 2" in words
    assert re.search(r"broker 2 +\S+ +killed", words)
    assert "isr [1, 3]" in words or "isr [3, 1]" in words
