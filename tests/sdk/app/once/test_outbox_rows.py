"""What `add` writes, and refuses, in the transactions of the drivers that a service may have."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ottla import ConfigError, InputError, Json, Outbox, RecordTooLarge, SerializationError, Str
from ottla.stores import Memory, Postgres, Sqlite
from ottla.stores.outbox_sessions import OutboxRow
from ottla.stores.outbox_sql import POSTGRESQL
from ottla.testing.databases import PostgresServer


@dataclass
class Order:
    id: int


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "shop.db")


@pytest.fixture
def outbox(path: str) -> Outbox:
    made = Outbox(Sqlite(path), value=Json(Order), key=Str())
    made.create_tables()
    return made


@pytest.fixture
def connection(path: str, outbox: Outbox) -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(path)
    yield made
    made.close()


def rows(outbox: Outbox) -> list[OutboxRow]:
    session = outbox.session()
    try:
        return session.read(skipped=[], most_rows=100, most_bytes=10**9)
    finally:
        session.close()


def test_a_row_is_written_with_the_transaction_and_not_without_it(outbox: Outbox, connection: sqlite3.Connection):
    own = outbox.add(connection, "orders", Order(1), key="k")
    assert rows(outbox) == []
    connection.commit()
    outbox.add(connection, "orders", Order(2), key="k")
    connection.rollback()
    (row,) = rows(outbox)
    assert (row.topic, row.key, row.value, row.message_id) == ("orders", b"k", b'{"id":1}', own)


@pytest.mark.parametrize(
    ("error", "arguments", "options"),
    [
        (SerializationError, ("orders", object()), {}),
        (RecordTooLarge, ("orders", Order(1)), {"key": "k" * 1_100_000}),
        (InputError, ("no topic", Order(1)), {}),
        (InputError, ("orders", Order(1)), {"message_id": ""}),
        (InputError, ("orders", Order(1)), {"message_id": "a\0b"}),
        (InputError, ("orders", Order(1)), {"partition": -1}),
        (SerializationError, ("orders", Order(1)), {"headers": {"a": b""}}),
        (SerializationError, ("orders", Order(1)), {"headers": [("a", "text")]}),
    ],
)
def test_what_send_would_refuse_fails_in_the_transaction(
    outbox: Outbox, connection: sqlite3.Connection, error: type[Exception], arguments: Any, options: Any
):
    with pytest.raises(error):
        outbox.add(connection, *arguments, **options)
    connection.commit()
    assert rows(outbox) == []


def test_a_topics_limit_that_was_given_counts_without_a_relay(connection: sqlite3.Connection, path: str):
    outbox = Outbox(Sqlite(path), topic_limits={"orders": 1_000})
    with pytest.raises(RecordTooLarge) as caught:
        outbox.add(connection, "orders", b"x" * 1_000)
    assert caught.value.limit_bytes == 1_000
    assert caught.value.setting == "topic_limits of the outbox for orders"
    outbox.add(connection, "orders", b"x" * 500)
    outbox.add(connection, "others", b"x" * 1_000)
    connection.commit()
    assert [row.topic for row in rows(outbox)] == ["orders", "others"]


@pytest.mark.parametrize(
    ("limits", "message"),
    [({"orders": 0}, "orders: found 0"), ({"orders": True}, "found True"), ({"no topic": 1}, "no topic")],
)
def test_topic_limits_that_are_none_are_refused(path: str, limits: dict[str, int], message: str):
    with pytest.raises(ConfigError, match=f"topic_limits: .*{message}"):
        Outbox(Sqlite(path), topic_limits=limits)


def test_a_read_takes_whole_rows_up_to_a_size_and_at_least_one(outbox: Outbox, connection: sqlite3.Connection):
    for number in range(5):
        outbox.add(connection, "orders", Order(number), key="k" * 1_000)
    connection.commit()
    session = outbox.session()
    assert len(session.read(skipped=[], most_rows=100, most_bytes=1)) == 1
    assert len(session.read(skipped=[], most_rows=100, most_bytes=2_500)) == 3
    assert len(session.read(skipped=[], most_rows=2, most_bytes=10**9)) == 2
    assert session.read(skipped=["orders"], most_rows=100, most_bytes=10**9) == []
    session.close()


@pytest.mark.representative("of all rows, a tenth refused")
@pytest.mark.parametrize("statistics", ["of the empty table", "of all rows", "of all rows, a tenth refused"])
def test_a_read_looks_at_few_more_rows_than_it_takes(statistics: str, postgres: PostgresServer):
    psycopg = pytest.importorskip("psycopg")
    backlog = f"backlog_{len(statistics)}"
    with psycopg.connect(postgres.conninfo, autocommit=True) as connection:
        connection.execute(f"create database {backlog}")
    conninfo = psycopg.conninfo.make_conninfo(postgres.conninfo, dbname=backlog)
    Outbox(Postgres(conninfo)).create_tables()
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("alter table ottla_outbox set (autovacuum_enabled = false)")
        connection.execute("vacuum analyze ottla_outbox")
        connection.execute(
            "insert into ottla_outbox (topic, key, value) "
            "select 'orders', cast(cast(n as text) as bytea), 'v' from generate_series(1, 20000) as n"
        )
        if "a tenth" in statistics:
            connection.execute("update ottla_outbox set parked_at = now(), reason = 'r' where id % 10 = 0")
        if "all rows" in statistics:
            connection.execute("vacuum analyze ottla_outbox")
        asked = {"skipped": [], "most_rows": 200, "most_bytes": 10**9}
        ((plan,),) = connection.execute(f"explain (analyze, format json) {POSTGRESQL.read.percent}", asked)
    assert 200 <= most_rows_of(plan[0]["Plan"]) <= 300


def most_rows_of(node: dict[str, Any]) -> float:
    """How many rows a step of the plan looked at, the one that looked at most."""
    own = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
    return max([own, *map(most_rows_of, node.get("Plans", ()))])


def test_rows_that_a_trigger_writes_have_everything_they_need(outbox: Outbox, connection: sqlite3.Connection):
    connection.execute("insert into ottla_outbox (topic) values ('orders')")
    connection.commit()
    (row,) = rows(outbox)
    assert (row.key, row.value, row.headers) == (None, None, "[]")
    assert len(row.message_id) == 32
    assert row.timestamp_ms > 1_600_000_000_000


def test_a_store_that_is_no_database_can_have_no_outbox():
    with pytest.raises(ConfigError, match="wanted Postgres"):
        Outbox(Memory())  # type: ignore[arg-type]


async def test_connections_and_sessions_of_every_kind_on_postgresql(postgres: PostgresServer):
    psycopg = pytest.importorskip("psycopg")
    outbox = Outbox(Postgres(postgres.conninfo), value=Json(Order), key=Str())
    outbox.create_tables()
    with psycopg.connect(postgres.conninfo) as connection:
        connection.execute("delete from ottla_outbox")
        outbox.add(connection, "orders", Order(1), key="k", headers=[("a", None)])
        with connection.cursor() as cursor:
            outbox.add(cursor, "orders", Order(2), key=None, partition=3)
    async with await psycopg.AsyncConnection.connect(postgres.conninfo) as own:
        await outbox.add_async(own, "orders", Order(3), key="k")
    with psycopg.connect(postgres.conninfo, autocommit=True) as connection:
        with pytest.raises(InputError, match="no transaction is open"):
            outbox.add(connection, "orders", Order(4), key="k")
        with connection.transaction():
            outbox.add(connection, "orders", Order(4), key="k")
        connection.execute("insert into ottla_outbox (topic) values ('by-hand')")
    found = rows(outbox)
    assert [row.value for row in found] == [b'{"id":1}', b'{"id":2}', b'{"id":3}', b'{"id":4}', None]
    assert (found[1].key, found[1].partition) == (None, 3)
    assert found[4].message_id


async def test_sessions_of_sqlalchemy_take_records(postgres: PostgresServer):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    loops = pytest.importorskip("sqlalchemy.ext.asyncio")
    pytest.importorskip("greenlet")
    from sqlalchemy.orm import sessionmaker

    from ottla.stores import Sql

    url = sqlalchemy.URL.create(
        "postgresql+psycopg", "postgres", database="postgres", query={"host": str(postgres.folder)}
    )
    engine = sqlalchemy.create_engine(url)
    make = sessionmaker(engine)
    outbox = Outbox(Sql(make, dialect="postgresql"), value=Json(Order), key=Str())
    outbox.create_tables()
    with make() as session:
        session.execute(sqlalchemy.text("delete from ottla_outbox"))
        outbox.add(session, "orders", Order(1), key="k")
        session.commit()
        outbox.add(session, "orders", Order(2), key="k")
        session.rollback()
    own = loops.create_async_engine(url, poolclass=sqlalchemy.NullPool)
    async with loops.async_sessionmaker(own)() as session:
        await outbox.add_async(session, "orders", Order(3), key="k")
        await session.commit()
    await own.dispose()
    assert [row.value for row in rows(outbox)] == [b'{"id":1}', b'{"id":3}']
    relay = outbox.session()
    assert relay.claim("me", 10_000)
    assert not relay.claim("you", 10_000)
    relay.delete([row.id for row in rows(outbox)])
    assert rows(outbox) == []
    relay.close()
    engine.dispose()
