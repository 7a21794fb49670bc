"""The lint of docstrings and comments finds each of its patterns, and holds every package at its baseline."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import plain_words
import pytest


def found(source: str) -> list[tuple[int, str]]:
    return sorted({(finding.line, finding.found) for finding in plain_words.findings(source)})


@pytest.mark.parametrize("word", ["What", "Of", "Where", "Those", "Whom", "Whose", "Who", "Whether", "Which", "How"])
def test_the_docstring_of_a_function_begins_with_its_verb(word: str) -> None:
    assert found(f'def f():\n    """{word} is free."""\n') == [(2, word)]
    assert found(f'class C:\n    async def f(self):\n        """{word} is free."""\n') == [(3, word)]


def test_classes_attributes_and_modules_may_begin_otherwise() -> None:
    assert found('"""What is free."""\nclass C:\n    """Where it is."""\n    x = 1\n    """How much."""\n') == []


WORDS = [
    *("told", "tell", "tells", "telling", "anew", "whom", "lets go", "let go", "letting go", "in vain", "keeps house"),
    *("keep house", "nobody", "somebody", "letter", "letters", "hear", "hears", "heard", "wish", "wishes"),
    *("goes away", "went away", "gone away", "is at it", "at its end", "is over"),
]


@pytest.mark.parametrize("word", WORDS)
def test_private_words_are_found_in_docstrings_and_comments(word: str) -> None:
    assert found(f'def f():\n    """Return x.\n\n    And {word} there.\n    """\n') == [(4, word)]
    assert found(f"x = 1  # {word.capitalize()} there\n") == [(1, word.capitalize())]
    assert found(f'class C:\n    x = 1\n    """The x: {word}"""\n') == [(3, word)]


def test_every_pattern_is_tried_here() -> None:
    assert {plain_words.findings(f"# {word}")[0].advice for word in WORDS} == set(plain_words.WORDS.values())


def test_a_phrase_is_found_over_the_end_of_a_line() -> None:
    assert found('"""The slot that it lets\ngo of."""\n') == [(1, "lets\ngo")]


def test_code_texts_and_dead_letters_are_left_alone() -> None:
    assert found('told = tell("nobody is told")\nprint("letter")\n') == []
    assert found('"""Dead letters, a dead-letter topic, a foretold one."""\n') == []


def test_a_package_is_named_by_its_first_two_parts() -> None:
    names = {
        "src/ottla/errors.py": "ottla",
        "src/ottla/once/steps.py": "ottla.once",
        "src/ottla/cli/shared/output.py": "ottla.cli",
        "broker_embedded/controller/raft/peer_requests.py": "broker_embedded.controller",
    }
    assert {path: plain_words.package_of(Path(path)) for path in names} == names


def test_more_findings_than_the_baseline_are_refused_and_fewer_are_not() -> None:
    counts = Counter({"ottla.once": 1, "ottla.cli": 3, "ottla.admin": 2})
    assert plain_words.above(counts, {"ottla.cli": 2, "ottla.admin": 4}) == ["ottla.cli", "ottla.once"]


def test_no_package_is_above_its_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    code = plain_words.main([])
    assert (code, *capsys.readouterr()) == (0, "", "")
    named = tomllib.loads(plain_words.BASELINE.read_text())["findings"]
    assert all(type(count) is int and count > 0 for count in named.values())
