"""The names in the glossary exist, and each word stands there once."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text(encoding="utf-8")
TABLES = [re.findall(r"^\| (?!word \|)([^|]+) \| ", part, re.MULTILINE) for part in PAGE.split("\n## ")[1:]]


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(ottla\.\w+(?:\.\w+)*)`", PAGE))))
def test_a_name_that_is_used_exists(name: str) -> None:
    parts = name.split(".")
    for depth in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:depth]))
        except ModuleNotFoundError:
            continue
        for part in parts[depth:]:
            found = getattr(found, part)
        return
    pytest.fail(f"{name} cannot be imported")


def test_a_word_stands_there_once() -> None:
    words = [word for table in TABLES for word in table]
    assert len(words) > 60
    assert sorted(set(words)) == sorted(words)
