"""Files of users for the embedded servers: an argument with a password is seen by other users of the machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from ottla.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])

_MOST_BYTES: Final = 1024 * 1024


def users_file_option(option: str, parameter: str, *, whose: str) -> Callable[[F], F]:
    """Return the option of such a file."""
    return click.option(
        option,
        parameter,
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help=f"A file with NAME=PASSWORD in each line: {whose}. Arguments are seen by other users of the machine.",
    )


def users_in(path: Path | None, option: str) -> list[str]:
    """Return the pairs NAME=PASSWORD of a file, one for each line that is not empty. Raises `InputError` that names the
    line, without the password."""
    if path is None:
        return []
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise InputError(f"{option} {path}: wanted text in UTF-8") from None
    except OSError as error:
        raise InputError(f"{option} {path}: cannot be read: {error.strerror}") from None
    if len(data) > _MOST_BYTES:
        raise InputError(f"{option} {path}: found more than {_MOST_BYTES:,} bytes, wanted a file of users")
    pairs = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        name, equals, password = line.partition("=")
        if not name or not equals or not password:
            raise InputError(f"{option} {path}, line {number}: wanted NAME=PASSWORD")
        pairs.append(line)
    return pairs
