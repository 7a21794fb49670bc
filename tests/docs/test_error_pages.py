"""Every public error has a page that says what to do, and says where it is; the code that shows an error raises it."""

from __future__ import annotations

import ast
import pickle
import re
import traceback
import types
from functools import cache
from importlib import metadata
from pathlib import Path

import click.testing
import pytest
from click.testing import CliRunner
from docs_site.error_pages import error_classes, error_pages, page_of

import ottla
from ottla import errors
from ottla.cli import main
from ottla.errors import BrokerUnavailable, ConfigError, OttlaError, UnknownTopic
from ottla.testing import Kafka

DOCS = Path(__file__).parents[2] / "docs"
WRITTEN = sorted((DOCS / "errors").glob("*.md"))


def title_of(path: Path) -> str:
    (title,) = re.findall(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return str(title)


NAMES = sorted(title_of(path) for path in WRITTEN)
"""Of all public errors: the first test sees that pages and classes are the same."""


@cache
def classes() -> dict[str, tuple[type[BaseException], str]]:
    """Imports every public module, which collecting tests need not wait for."""
    return error_classes()


def test_every_public_error_has_a_page_and_no_page_is_about_another() -> None:
    assert {path.name for path in WRITTEN} == {page_of(name) for name in classes()}
    for path in WRITTEN:
        assert page_of(title_of(path)) == path.name


def test_every_page_has_what_the_code_says_and_a_row() -> None:
    pages = error_pages(DOCS)
    for name in classes():
        assert f"import {name}" in pages[f"errors/{page_of(name)}"]
        assert f"]({page_of(name)})" in pages["errors/index.md"]


def test_the_first_line_of_an_error_says_what_to_do() -> None:
    for name, (error, _) in classes().items():
        first = (error.__doc__ or "").strip().split("\n")[0]
        assert len(first) > 20, name
        assert first.endswith("."), name


def shown(error: BaseException) -> str:
    """As Python shows an error that nobody catches."""
    return "".join(traceback.format_exception_only(error))


MAKE = {
    "DeliveryError": lambda error: error([]),
    "OffsetOutOfRange": lambda error: error(topic="orders", partition=0, wanted=1, earliest=2, latest=3),
    "PartlyDone": lambda error: error("delete", done=[], failed={}),
    "RecordTooLarge": lambda error: error(topic="orders", size_bytes=2, limit_bytes=1, setting="message.max.bytes"),
}
RAISED_BY_USERS = {"InvalidRecord"}


@pytest.fixture
def no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_documentation", lambda: None)


@pytest.mark.parametrize("name", sorted(set(NAMES) - RAISED_BY_USERS))
@pytest.mark.usefixtures("no_address")
def test_an_error_that_is_shown_ends_with_where_its_page_is(name: str) -> None:
    error: BaseException = MAKE.get(name, lambda error: error("said"))(classes()[name][0])
    assert shown(error).endswith(f"\nWhat to do: ottla explain {name}\n")
    assert "What to do" not in str(error)


def test_an_error_of_the_package_has_a_page_or_says_that_it_takes_that_of_its_base() -> None:
    """Read from the source: some modules of the package start a program when they are imported."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in Path(ottla.__file__).parent.rglob("*.py")]
    defined = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    bases = [(each.name, {ast.unparse(base) for base in each.bases}) for each in defined if each.bases]
    of_ottla = {"OttlaError"}
    for _ in range(5):  # as deep as the tree of errors is
        of_ottla |= {name for name, above in bases if above & of_ottla}
    without = {each.name for each in defined if "has_page=False" in [ast.unparse(keyword) for keyword in each.keywords]}
    assert len(without) > 5
    assert of_ottla - without == {name for name, (error, _) in classes().items() if issubclass(error, OttlaError)}


def test_an_error_that_a_program_adds_names_the_page_of_its_base() -> None:
    class Mine(UnknownTopic):
        pass

    assert shown(Mine("gone")).endswith("explain UnknownTopic\n")


def test_notes_of_programs_are_kept_and_belong_to_one_error() -> None:
    first, second = ConfigError("one"), ConfigError("two")
    first.add_note("seen in staging")
    assert "seen in staging" in shown(first)
    assert "seen in staging" not in shown(second)
    assert shown(pickle.loads(pickle.dumps(first))) == shown(first)
    assert BrokerUnavailable("away").args == ("away",)


def test_once_the_project_has_an_address_it_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    urls = metadata.metadata("ottla")
    del urls["Project-URL"]
    urls["Project-URL"] = "Source, https://forge.test/ottla"
    urls["Project-URL"] = "Documentation, https://docs.test/ottla"
    monkeypatch.setattr(metadata, "metadata", lambda name: urls)
    errors._documentation.cache_clear()
    try:
        assert shown(UnknownTopic("gone")).endswith("\nWhat to do: https://docs.test/ottla/errors/unknown-topic/\n")
    finally:
        errors._documentation.cache_clear()


@pytest.mark.parametrize("name", NAMES)
def test_explain_shows_the_page(name: str) -> None:
    for word in (name, errors.page_of(name), f"ottla.errors.{name}"):
        result = CliRunner().invoke(main, ["explain", word])
        assert result.exit_code == 0
        assert result.output.rstrip("\n") == (DOCS / "errors" / page_of(name)).read_text(encoding="utf-8").rstrip("\n")


def test_explain_lists_all_errors_and_names_the_nearest() -> None:
    assert CliRunner().invoke(main, ["explain"]).output.split() == sorted(classes())
    result = CliRunner().invoke(main, ["explain", "UnknownTopi"])
    assert result.exit_code == 2
    assert "did you mean UnknownTopic?" in result.output


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize("change", [False, True])
@pytest.mark.usefixtures("no_address")
def test_a_command_that_fails_tells_people_where_the_page_is(
    change: bool, is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(click.testing._NamedTextIOWrapper, "isatty", lambda self: is_terminal)
    wrong = ["config", "explain", "--for", "producer", "--set", "linger.mss=5"]
    away = ["topics", "create", "orders", "-b", "127.0.0.1:1", "--timeout", "1"]
    result = CliRunner().invoke(main, away if change else wrong)
    name = "BrokerUnavailable" if change else "ConfigError"
    first, *more = result.stderr.splitlines()
    assert first.startswith(f"ottla: {name}: ")
    assert more == ([f"What to do: ottla explain {name}"] if is_terminal else [])


RAISING = [path for path in WRITTEN if 'title="raises"' in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", RAISING, ids=lambda path: path.stem)
def test_what_is_shown_raises_the_error(path: Path, kafka: Kafka, make_topic) -> None:
    text = path.read_text(encoding="utf-8")
    (program,) = re.findall(r'^```python title="raises"\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
    title = title_of(path)
    program = program.replace("localhost:9092", kafka.bootstrap_servers).replace('"orders"', f'"{make_topic()}"')
    with pytest.raises(classes()[title][0]) as raised:
        exec(compile(program, path.name, "exec", dont_inherit=True), vars(types.ModuleType("shown")))
    assert type(raised.value).__name__ == title
