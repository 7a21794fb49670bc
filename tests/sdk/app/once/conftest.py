"""Real databases, one of each kind for a file of tests. A test is skipped where the platform has none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.stores import Memory, Sqlite
from ottla.testing.databases import NoServer, PostgresServer, RedisServer, postgres_server, redis_server


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    pytest.importorskip("psycopg", reason="the PostgreSQL store needs psycopg")
    try:
        with postgres_server() as server:
            from ottla.stores import Postgres

            Postgres(server.conninfo).create_tables()
            yield server
    except NoServer as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    pytest.importorskip("redis", reason="the Redis store needs redis")
    try:
        with redis_server() as server:
            yield server
    except NoServer as reason:
        pytest.skip(str(reason))


def sqlite_store(folder: Path) -> Sqlite:
    store = Sqlite(str(folder / "store.db"))
    store.create_tables()
    return store


def make_store(kind: str, folder: Path, request: pytest.FixtureRequest) -> Any:
    """A store by its name, on a real server where it needs one."""
    if kind == "memory":
        return Memory()
    if kind == "sqlite":
        return sqlite_store(folder)
    if kind == "postgres":
        from ottla.stores import Postgres

        return Postgres(request.getfixturevalue("postgres").conninfo)
    from ottla.stores import Redis

    return Redis(request.getfixturevalue("redis").url)
