"""Every store keeps the rules that handlers rely on; those that break one are found by the same checks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla import ConfigError
from ottla.clock import ManualClock
from ottla.stores import Memory, Sqlite
from ottla.stores.sql_text import POSTGRESQL, SQLITE
from ottla.testing.databases import PostgresServer, RedisServer
from ottla.testing.stores import check_claim_store, check_transaction_store

from .conftest import make_store, sqlite_store


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "redis"])
def test_claims_of_a_store(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    check_claim_store(make_store(kind, tmp_path, request))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_transactions_of_a_store(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    check_transaction_store(make_store(kind, tmp_path, request))


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "redis"])
@pytest.mark.parametrize("others", [[], ['"'], ["\\"]], ids=["plain", "a quote", "a backslash"])
def test_ids_are_taken_as_they_are(
    kind: str, others: list[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    ids = ["a,b", "{a}", "NULL", "null", " a ", "a", "a'b", "é", "%(ids)s", ":ids", *(f"a{end}" for end in others)]
    consumer = f"{request.node.name}"
    session = make_store(kind, tmp_path, request).claims()
    try:
        assert set(session.claim(consumer, ids, owner="o", lease_ms=60_000)) == set(ids)
        session.finish(consumer, ids, window_ms=60_000)
        assert session.look(consumer, [*ids, "b"]) == dict.fromkeys(ids)
        assert session.claim(consumer, [], owner="o", lease_ms=60_000) in ([], set())
    finally:
        session.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_marked_ids_are_told_as_they_are(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    ids = ['a"b', "a\\b", '\\"', '","', "{", "", "a"]
    session = make_store(kind, tmp_path, request).session()
    session.begin()
    assert set(session.mark("odd", ids)) == set(ids)
    assert set(session.mark("odd", [*ids, "new"])) == {"new"}
    session.rollback()
    session.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_marks_leave_what_the_transaction_did_before_them(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    session = make_store(kind, tmp_path, request).session()
    consumer = request.node.name
    session.begin()
    session.transaction.execute("create table before_marks (n int)")
    session.transaction.execute("insert into before_marks values (1)")
    assert set(session.mark(consumer, ["a"])) == {"a"}
    assert set(session.mark(consumer, ["a", "b"])) == {"b"}
    session.commit()
    session.begin()
    assert session.transaction.execute("select n from before_marks").fetchall() == [(1,)]
    assert set(session.mark(consumer, ["c", "b", "a"])) == {"c"}
    session.transaction.execute("drop table before_marks")
    session.commit()
    session.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "redis"])
def test_of_a_run_only_what_is_free_is_claimed(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    consumer = request.node.name
    store = make_store(kind, tmp_path, request)
    one, two = store.claims(), store.claims()
    try:
        one.finish(consumer, ["done"], window_ms=60_000)
        assert set(one.claim(consumer, ["held"], owner="one", lease_ms=60_000)) == {"held"}
        assert set(two.claim(consumer, ["a", "done", "held", "b"], owner="two", lease_ms=60_000)) == {"a", "b"}
        assert set(one.claim(consumer, ["a", "held", "c"], owner="one", lease_ms=60_000)) == {"held", "c"}
        assert set(two.claim(consumer, ["done", "held"], owner="two", lease_ms=60_000)) == set()
    finally:
        one.close()
        two.close()


def test_sessions_of_sqlalchemy_are_a_store(postgres: PostgresServer) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    asyncio_of_sqlalchemy = pytest.importorskip("sqlalchemy.ext.asyncio")
    pytest.importorskip("greenlet")
    from sqlalchemy.orm import sessionmaker

    from ottla.stores import Sql

    url = sqlalchemy.URL.create(
        "postgresql+psycopg", "postgres", database="postgres", query={"host": str(postgres.folder)}
    )
    engine = sqlalchemy.create_engine(url)
    threads = Sql(sessionmaker(engine), dialect="postgresql")

    class Both:
        """`Sql` is for threads or for loops, as its sessions are; the checks want both."""

        session = claims = staticmethod(threads.session)
        is_outage = staticmethod(threads.is_outage)

        @staticmethod
        async def async_session() -> Any:
            own = asyncio_of_sqlalchemy.create_async_engine(url, poolclass=sqlalchemy.NullPool)
            return await Sql(asyncio_of_sqlalchemy.async_sessionmaker(own), dialect="postgresql").async_session()

        async_claims = async_session

    try:
        check_transaction_store(Both())
        check_claim_store(Both())
    finally:
        engine.dispose()


def test_the_check_finds_a_store_that_lets_two_owners_in() -> None:
    class Careless:
        def __init__(self) -> None:
            self._inner = Memory()

        def claims(self) -> Any:
            inner = self._inner.claims()

            class Session:
                def claim(self, consumer: str, ids: Sequence[str], *, owner: str, lease_ms: int) -> Collection[str]:
                    return ids

                def __getattr__(self, name: str) -> Any:
                    return getattr(inner, name)

            return Session()

        async def async_claims(self) -> Any:
            return await self._inner.async_claims()

        def is_outage(self, error: BaseException) -> bool:
            return False

    with pytest.raises(AssertionError, match="a claim keeps others out"):
        check_claim_store(Careless())


def test_claims_of_a_store_follow_its_clock(tmp_path: Path) -> None:
    clock = ManualClock()
    check_claim_store(Memory(clock=clock), wait_ms=clock.advance)
    store = Sqlite(str(tmp_path / "clock.db"), clock=clock)
    store.create_tables()
    check_claim_store(store, wait_ms=clock.advance)


def test_memory_forgets_the_oldest_beyond_its_bound() -> None:
    session = Memory(max_ids=2).claims()
    session.finish("c", ["a", "b", "c"], window_ms=1_000)
    assert session.look("c", ["a", "b", "c"]) == {"b": None, "c": None}


def test_a_database_without_tables_says_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no usable table ottla_inbox .* create_tables\(\)"):
        Sqlite(str(tmp_path / "empty.db")).session()


def test_a_postgres_without_tables_says_how_to_make_them(postgres: PostgresServer) -> None:
    from ottla.stores import Postgres

    store = Postgres(postgres.conninfo + " options='-c search_path=elsewhere'")
    with pytest.raises(ConfigError, match=r"no usable table ottla_inbox .* create_tables\(\)"):
        store.session()


async def test_a_connection_of_a_pool_goes_back_to_it_when_tables_are_missing(postgres: PostgresServer) -> None:
    import psycopg

    from ottla.stores import Postgres

    conninfo = postgres.conninfo + " options='-c search_path=elsewhere'"
    with psycopg.Connection.connect(conninfo) as one:
        given_back: list[object] = []

        async def give_back(connection: object) -> None:
            given_back.append(connection)

        async with await psycopg.AsyncConnection.connect(conninfo) as other:

            async def connect() -> psycopg.AsyncConnection[Any]:
                return other

            store = Postgres(connect=lambda: one, close=given_back.append, async_connect=connect, async_close=give_back)
            with pytest.raises(ConfigError, match="no usable table"):
                store.session()
            with pytest.raises(ConfigError, match="no usable table"):
                await store.async_session()
            assert given_back == [one, other]
            assert not one.closed
            assert not other.closed


async def test_a_connection_of_a_pool_that_the_server_ended_goes_back_to_it(postgres: PostgresServer) -> None:
    import psycopg

    from ottla.stores import Postgres

    given_back: list[object] = []

    async def give_back(connection: object) -> None:
        given_back.append(connection)

    async def connect() -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(postgres.conninfo)

    store = Postgres(
        connect=lambda: psycopg.Connection.connect(postgres.conninfo),
        close=given_back.append,
        async_connect=connect,
        async_close=give_back,
    )
    session, other = store.session(), await store.async_session()
    ended = [session.transaction, other.transaction]
    with psycopg.Connection.connect(postgres.conninfo) as admin:
        for connection in ended:
            admin.execute("select pg_terminate_backend(%s)", [connection.info.backend_pid])
    with pytest.raises(psycopg.OperationalError):
        session.begin()
    with pytest.raises(psycopg.OperationalError):
        await other.begin()
    assert all(connection.broken for connection in ended)
    session.close()
    await other.close()
    assert given_back == ended


def test_a_handler_that_ends_the_transaction_itself_is_told(tmp_path: Path) -> None:
    session = sqlite_store(tmp_path).session()
    session.begin()
    with session.transaction:
        pass  # commits, as the driver's own context manager does
    with pytest.raises(RuntimeError, match="savepoint"):
        session.mark("c", ["a"])
    session.close()


def test_a_commit_that_postgres_answers_with_rollback_is_an_error(postgres: PostgresServer) -> None:
    import psycopg

    from ottla.stores import Postgres

    session = Postgres(postgres.conninfo).session()
    session.begin()
    with pytest.raises(psycopg.errors.UndefinedTable):
        session.transaction.execute("select * from nowhere")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction, match="savepoint"):
        session.commit()
    session.close()


def test_redis_that_evicts_marks_is_refused(redis: RedisServer) -> None:
    import redis as driver

    from ottla.stores import Redis

    client = driver.Redis.from_url(redis.url)
    client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(ConfigError, match="allkeys-lru"):
            Redis(redis.url).claims()
    finally:
        client.config_set("maxmemory-policy", "noeviction")
        client.close()


def test_the_schema_is_statements_that_a_migration_can_have() -> None:
    for dialect in (POSTGRESQL, SQLITE):
        assert dialect.schema.count("create table") == 2
        assert "ottla_inbox" in dialect.schema
        assert "ottla_offsets" in dialect.schema


def test_messages_name_a_store_without_its_password() -> None:
    pytest.importorskip("psycopg")
    pytest.importorskip("redis")
    from ottla.stores import Postgres, Redis

    url = "postgresql://clerk:secret@db.local:5433/shop"
    assert repr(Postgres(url)) == "Postgres('user=clerk dbname=shop host=db.local port=5433')"
    assert repr(Postgres("host=/run/pg password=secret sslpassword=secret")) == "Postgres('host=/run/pg')"
    assert repr(Postgres("secret")) == "Postgres('...')"
    assert repr(Redis("redis://:secret@cache:6380/2?password=secret")) == "Redis('redis://cache:6380/2')"
