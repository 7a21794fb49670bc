"""`--store`: the database that a command looks into."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.stores import Postgres, Sqlite

F = TypeVar("F", bound=Callable[..., Any])


def names_a_store(command: F) -> F:
    """Give a command `--store`. It is called with `store`, for `store_of`."""
    return click.option(
        "--store",
        required=True,
        metavar="DATABASE",
        envvar="OTTLA_STORE",
        help="postgresql://host/database, or the path of a SQLite file. Passwords: PGPASSWORD or ~/.pgpass.",
    )(command)


def store_of(store: str) -> Postgres | Sqlite:
    """Return the store that `--store` names."""
    if store.startswith(("postgresql://", "postgres://")) or "dbname=" in store:
        from ottla.stores import Postgres

        return Postgres(store)
    from pathlib import Path

    from ottla.stores import Sqlite

    if not Path(store).is_file():
        raise InputError(f"--store: found {store!r}, wanted postgresql://host/database or a SQLite file that exists")
    return Sqlite(store)


def shown_store(store: str) -> str:
    """Return the store without a password in it."""
    return re.sub(r"://[^@/]*@", "://...@", store)
