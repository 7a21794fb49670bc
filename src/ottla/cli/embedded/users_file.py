"""Files of users for the embedded servers: an argument with a password is seen by other users of the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from ottla.cli.shared.file_type import FILE
from ottla.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])


def users_file_option(option: str, parameter: str, *, whose: str) -> Callable[[F], F]:
    """Return the option of such a file."""
    return click.option(
        option,
        parameter,
        type=FILE,
        metavar="FILE",
        help=f"A file with NAME=PASSWORD in each line: {whose}. Arguments are seen by other users of the machine.",
    )


def users_in(path: Path | None, option: str) -> list[str]:
    """Return the pairs NAME=PASSWORD of the file. Raises `InputError` that names the line, without the password."""
    if path is None:
        return []
    from broker_embedded.common.errors import StartupError
    from broker_embedded.security.users_file import pairs_in

    try:
        return pairs_in(path, option)
    except StartupError as error:
        raise InputError(str(error)) from None


def users_of_options(options: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return the passwords by user of the pairs NAME=PASSWORD in each option. Raises `InputError`, without a password,
    for what is no pair and for a name that is given twice."""
    from broker_embedded.common.errors import StartupError
    from broker_embedded.security.users_file import users_of

    try:
        return users_of(options)
    except StartupError as error:
        raise InputError(str(error)) from None
