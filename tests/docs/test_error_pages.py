"""Every public error has a page that says what to do; the code that shows an error raises it."""

from __future__ import annotations

import re
import types
from pathlib import Path

import pytest
from docs_site.error_pages import error_classes, error_pages, page_of

from ottla.testing import Kafka

DOCS = Path(__file__).parents[2] / "docs"
CLASSES = error_classes()
WRITTEN = sorted((DOCS / "errors").glob("*.md"))


def test_a_page_that_was_written_is_about_an_error_that_exists() -> None:
    assert {path.name for path in WRITTEN} <= {page_of(name) for name in CLASSES}
    for path in WRITTEN:
        (title,) = re.findall(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert page_of(title) == path.name


def test_every_error_has_a_page_and_a_row() -> None:
    pages = error_pages(DOCS)
    for name in CLASSES:
        assert f"import {name}" in pages[f"errors/{page_of(name)}"]
        assert f"]({page_of(name)})" in pages["errors/index.md"]


def test_the_first_line_of_an_error_says_what_to_do() -> None:
    for name, (error, _) in CLASSES.items():
        first = (error.__doc__ or "").strip().split("\n")[0]
        assert len(first) > 20, name
        assert first.endswith("."), name


RAISING = [path for path in WRITTEN if 'title="raises"' in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", RAISING, ids=lambda path: path.stem)
def test_what_is_shown_raises_the_error(path: Path, kafka: Kafka, make_topic) -> None:
    text = path.read_text(encoding="utf-8")
    (program,) = re.findall(r'^```python title="raises"\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
    (title,) = re.findall(r"^# (.+)$", text, re.MULTILINE)
    program = program.replace("localhost:9092", kafka.bootstrap_servers).replace('"orders"', f'"{make_topic()}"')
    with pytest.raises(CLASSES[title][0]) as raised:
        exec(compile(program, path.name, "exec", dont_inherit=True), vars(types.ModuleType("shown")))
    assert type(raised.value).__name__ == title
