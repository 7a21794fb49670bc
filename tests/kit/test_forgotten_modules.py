"""A module that a test wrote and imported is gone when the next test writes one of the same name."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.shared.target import import_target

NAMES = ("service_that_is_forgotten", "package_that_is_forgotten.service", "folder_that_is_forgotten.service")


def write(folder: Path, name: str, number: int) -> None:
    file = folder.joinpath(*name.split(".")).with_suffix(".py")
    file.parent.mkdir(exist_ok=True)
    if name.startswith("package"):
        (file.parent / "__init__.py").touch()
    file.write_text(f"NUMBER = {number}\n")


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_a_module_of_a_tests_folder_is_imported_by_each_test_that_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    write(tmp_path, name, number)
    monkeypatch.syspath_prepend(tmp_path)
    assert number == importlib.import_module(name).NUMBER


@pytest.mark.parametrize("number", [1, 2])
def test_a_folder_that_a_command_imports_from_is_no_longer_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, NAMES[0], number)
    module, _ = import_target(f"{NAMES[0]}:NUMBER", wanted="MODULE:NUMBER", example=NAMES[0])
    assert number == module.NUMBER
    assert [each for each in sys.path if each.startswith(str(tmp_path.parent))] == [str(tmp_path)]


@pytest.fixture(scope="module")
def of_the_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    folder = tmp_path_factory.mktemp("of_the_file")
    write(folder, "module_of_the_file", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield importlib.import_module("module_of_the_file")


@pytest.mark.parametrize("number", [1, 2])
def test_what_a_fixture_of_the_file_imported_stays(of_the_file: object, number: int) -> None:
    assert sys.modules["module_of_the_file"] is of_the_file
