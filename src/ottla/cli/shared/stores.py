"""`--store`: the database that a command looks into."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla.errors import InputError, StoreUnavailable
from ottla.failures.exceptions import described

if TYPE_CHECKING:
    from ottla.stores import Postgres, Sqlite
    from ottla.stores.outbox_sessions import OutboxStore

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
        shown = shown_store(store)
        raise InputError(f"--store: found {shown!r}, wanted postgresql://host/database or a SQLite file that exists")
    return Sqlite(store)


@contextmanager
def reaching(store: OutboxStore) -> Iterator[None]:
    """Raise `StoreUnavailable` where the statements inside do not reach the database."""
    try:
        yield
    except Exception as error:
        if store.is_outage(error):
            raise StoreUnavailable(f"{store!r}: {described(error)}") from error
        raise


def shown_store(store: str) -> str:
    """Return the store without a password in it."""
    return re.sub(r"://[^@/]*@", "://...@", store)
