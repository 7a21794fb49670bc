"""What type checkers make of a service, as its author runs them: nothing of a sound one, each mistake of another."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import shutil
import subprocess
import sys
import typing
from pathlib import Path

import pytest

from ottla import App, AsyncConsumer, AsyncProducer, Consumer, Producer
from ottla.app.handler.handler_options import ConsumerOptions, HandlerOptions
from ottla.producer.partitioners import PARTITIONERS
from ottla.producer.signature import PartitionerName, ProducerOptions, Profile

pytestmark = pytest.mark.complete

SERVICES = Path(__file__).parent / "services"
EXPECTED = re.compile(r"# expected: mypy\[(?P<mypy>\S+)\] pyright\[(?P<pyright>\S+)\]$")
MISTAKES = 9


def expected(checker: str) -> list[tuple[int, str]]:
    """(line, rule) of each mistake."""
    lines = (SERVICES / "mistaken.py").read_text().splitlines()
    return [(number, found[checker]) for number, line in enumerate(lines, 1) if (found := EXPECTED.search(line))]


@pytest.fixture(scope="module")
def found_by_mypy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[int, str]]]:
    """File → (line, code) of what mypy --strict reports."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(SERVICES, folder, dirs_exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", "."],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.stderr == ""
    found: dict[str, list[tuple[int, str]]] = {}
    for file, line, code in re.findall(r"^(\S+):(\d+): error: .*\[(\S+)\]$", done.stdout, re.MULTILINE):
        found.setdefault(file, []).append((int(line), code))
    assert done.returncode == bool(found), done.stdout
    return found


@pytest.fixture(scope="module")
def found_by_pyright(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[int, str]]]:
    """File → (line, rule) of what pyright reports."""
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("pyright is not installed")
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(SERVICES, folder, dirs_exist_ok=True)
    pyright = [sys.executable, "-m", "pyright"]
    try:  # its program comes from the npm registry, once
        started = subprocess.run([*pyright, "--version"], cwd=folder, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        pytest.skip("the npm registry did not give pyright's program in 60 s")
    if started.returncode != 0:
        pytest.skip(f"pyright's program cannot be had from the npm registry: {started.stderr.strip()[-300:]}")
    done = subprocess.run(
        [*pyright, "--outputjson", "--pythonpath", sys.executable, "."],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=110,
    )
    report = json.loads(done.stdout)
    found: dict[str, list[tuple[int, str]]] = {}
    for one in report["generalDiagnostics"]:
        at = one["range"]["start"]["line"] + 1
        found.setdefault(Path(one["file"]).name, []).append((at, one.get("rule", one["message"])))
    return found


def test_there_are_nine_mistakes() -> None:
    assert len(expected("mypy")) == len(expected("pyright")) == MISTAKES


@pytest.mark.slow
def test_mypy_finds_nothing_in_a_sound_service(found_by_mypy: dict[str, list[tuple[int, str]]]) -> None:
    assert "sound.py" not in found_by_mypy


@pytest.mark.slow
def test_mypy_finds_each_of_nine_mistakes(found_by_mypy: dict[str, list[tuple[int, str]]]) -> None:
    found = found_by_mypy["mistaken.py"]
    # mypy says of a decorator that fits no overload a second time that it is untyped
    assert sorted(one for one in found if one[1] != "untyped-decorator") == expected("mypy")


@pytest.mark.slow
def test_pyright_finds_nothing_in_a_sound_service(found_by_pyright: dict[str, list[tuple[int, str]]]) -> None:
    assert "sound.py" not in found_by_pyright


@pytest.mark.slow
def test_pyright_finds_each_of_nine_mistakes(found_by_pyright: dict[str, list[tuple[int, str]]]) -> None:
    found = {line: rule for line, rule in found_by_pyright["mistaken.py"] if rule != "reportCallIssue"}
    assert sorted(found.items()) == expected("pyright")


@pytest.mark.representative
@pytest.mark.parametrize(
    ("function", "options", "by_overload"),
    [
        (Producer.__init__, ProducerOptions, {"bootstrap_servers", "key", "value"}),
        (AsyncProducer.__init__, ProducerOptions, {"bootstrap_servers", "key", "value"}),
        (Consumer.__init__, ConsumerOptions, {"topics", "group", "value", "dead_letter_topic"}),
        (AsyncConsumer.__init__, ConsumerOptions, {"topics", "group", "value", "dead_letter_topic"}),
        (App.handler, HandlerOptions, {"topics", "value", "batch", "columns"}),
    ],
)
def test_overloads_take_the_same_arguments_as_the_function(
    function: typing.Callable[..., object], options: typing.Any, by_overload: set[str]
) -> None:
    arguments = set(inspect.signature(function).parameters) - {"self"}

    assert options.__optional_keys__ | by_overload == arguments


@pytest.mark.representative
def test_choices_are_literals_of_what_there_is() -> None:
    from ottla.config import PROFILES
    from ottla.consumer import Ordering
    from ottla.failures.dead_letter import KINDS
    from ottla.records import FailureKind

    assert typing.get_args(PartitionerName) == PARTITIONERS
    assert set(typing.get_args(Profile)) == set(PROFILES)
    assert typing.get_args(FailureKind) == KINDS
    ordering = typing.get_args(typing.get_type_hints(HandlerOptions)["ordering"])
    assert typing.get_args(ordering[1]) == tuple(one.value for one in Ordering)


@pytest.mark.representative
@pytest.mark.parametrize("generic", [Producer, AsyncProducer, Consumer, AsyncConsumer])
def test_names_of_types_work_when_the_program_runs(generic: typing.Any) -> None:
    assert typing.get_args(generic[int]) == (int,)
    assert typing.get_origin(generic[int]) is generic


@pytest.mark.representative
@pytest.mark.parametrize("generic", [Producer, AsyncProducer])
def test_a_producers_key_may_be_named_or_not(generic: typing.Any) -> None:
    assert typing.get_args(generic[int, str]) == (int, str)
