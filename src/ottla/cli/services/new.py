"""`ottla new DIR`: a service with its tests, written from `examples/tested_service` under a name of its own."""

from __future__ import annotations

import re
import sys
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from shlex import quote
from typing import Final

import click

from ottla.errors import InputError, OttlaError

EXAMPLE: Final = "shop"
"""The package of the example: this word is replaced in paths and texts."""
FILES: Final = (
    ".dockerignore",
    ".github/workflows/test.yml",
    ".gitignore",
    "Dockerfile",
    "README.md",
    "compose.yaml",
    "pyproject.toml",
    "shop/__init__.py",
    "shop/events.py",
    "shop/main.py",
    "shop/send.py",
    "shop/service.py",
    "tests/conftest.py",
    "tests/test_on_kafka.py",
    "tests/test_rules.py",
)
_IN_CHECKOUT: Final = Path(__file__).parents[4] / "examples" / "tested_service"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,49}")
_TAKEN: Final = frozenset({"broker_embedded", "dist", "ottla", "ottla_wire", "pyspark_ottla", "tests"})
"""Ottla's own, which an editable installation does not list, and folders of the service."""


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME", help="The name of the Python package; that of DIR if left out.")
def new(directory: Path, name: str | None) -> None:
    """Write a service into DIR, which is new or empty: handler, tests, Dockerfile, Compose file, CI file.

    The tests run on the embedded broker, and the Compose file starts it beside the service.

    \b
    Examples:
      ottla new billing
      ottla new services/billing --name bills
    """
    package = _package_name(directory, name)
    texts = {_renamed(path, package): _renamed(text, package) for path, text in _example().items()}
    _write_all(directory, texts)
    shown = click.format_filename(directory)
    click.echo(f"written to {shown}:")
    for path in texts:
        click.echo(f"  {path}")
    there = "" if directory.resolve() == Path.cwd() else f"cd {quote(shown)} && "
    click.echo(f"next: {there}pip install -e '.[test]' && pytest")


def _package_name(directory: Path, name: str | None) -> str:
    """Return the name of the package. InputError for one that cannot be imported, or hides another package."""
    from importlib.metadata import packages_distributions
    from keyword import iskeyword

    package = directory.resolve().name.replace("-", "_").lower() if name is None else name
    hint = "" if name is not None else "; choose another by --name"
    if not _NAME.fullmatch(package) or iskeyword(package):
        raise InputError(
            f"found {package!r} as the package's name, wanted lower-case letters, digits and '_', a letter first,"
            f" at most 50, and no keyword of Python{hint}"
        )
    if package in sys.stdlib_module_names or package in _TAKEN or package in packages_distributions():
        raise InputError(f"the package's name {package!r} would hide a module of that name{hint}")
    return package


def _renamed(text: str, package: str) -> str:
    return re.sub(rf"\b{EXAMPLE}\b", package, text)


def _example() -> dict[str, str]:
    """Return path: text of the example's files."""
    installed = files("ottla") / "new_service"  # put there when the wheel is built
    folder: Traversable = installed if installed.is_dir() else _IN_CHECKOUT
    return {path: folder.joinpath(path).read_text(encoding="utf-8") for path in FILES}


def _write_all(directory: Path, texts: dict[str, str]) -> None:
    """Write the files into a folder that is new or empty. What fails half-way leaves none of them."""
    made: list[Path] = []
    try:
        _make_folders(directory, made)
        if next(directory.iterdir(), None) is not None:
            raise InputError(f"{directory}: found files, wanted a new or an empty folder")
        for path, text in texts.items():
            target = directory / path
            _make_folders(target.parent, made)
            with target.open("x", encoding="utf-8") as file:
                made.append(target)
                file.write(text)
    except BaseException as error:
        for each in reversed(made):
            each.rmdir() if each.is_dir() else each.unlink()
        if isinstance(error, OSError):
            named = error.filename or (made[-1] if made else directory)  # a write that fails names no file
            raise OttlaError(f"{named}: {error.strerror}") from error
        raise


def _make_folders(folder: Path, made: list[Path]) -> None:
    """Make a folder and those above it. Appends to `made` what was not there."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir()
        made.append(each)
    if not folder.is_dir():
        raise InputError(f"{folder}: found a file, wanted a new or an empty folder")
