"""The prose lint finds what a reader has to read twice, leaves code alone, and finds nothing in the pages there are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from prose import PATTERNS, problems, problems_in

from ottla.cli import main


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("The client is told where to go.", "told"),
        ("A scheduler hears of it.", "hears"),
        ("The partition goes on.", "goes on"),
        ("The record comes\nagain.", "comes again"),
        ("While the broker is away, records wait.", "is away"),
        ("Whoever reads it adds up sums.", "Whoever"),
        ("Of what was fetched, half is kept.", "Of what"),
        ("Two letters in the topic.", "letters"),
        ("It reckons with the growth.", "reckons"),
    ],
)
def test_a_sentence_of_private_words_is_found(sentence: str, words: str) -> None:
    assert [found for _, found, _ in problems_in(sentence)] == [words]


@pytest.mark.parametrize(
    "sentence",
    [
        "The partition continues.",
        "Dead letters keep their bytes.",
        "Run `ottla told` or [this](told.md).",
        "```\nwhoever reads code\n```",
        "A list of what is done.",
    ],
)
def test_plain_sentences_code_and_links_are_left_alone(sentence: str) -> None:
    assert list(problems_in(sentence)) == []


def test_a_finding_has_its_line_and_advice(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```\ncode\n```\n\nThe consumer goes on.\n", encoding="utf-8")
    assert problems(page) == [f"{page}:7: 'goes on': continues"]


def test_every_pattern_has_advice() -> None:
    assert all(advice for advice in PATTERNS.values())


def help_texts(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    yield path, command.help or ""
    for parameter in command.params:
        yield f"{path} {parameter.opts[0]}", getattr(parameter, "help", None) or ""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from help_texts(found, f"{path} {name}")


def test_help_texts_have_no_finding() -> None:
    found = [(path, words) for path, text in help_texts(main, "ottla") for _, words, _ in problems_in(text)]
    assert found == []


def test_the_pages_have_no_finding() -> None:
    assert problems() == []
