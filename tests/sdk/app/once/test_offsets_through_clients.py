"""Offsets in the handler's own database, through the real clients and in both shells."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla import App, BindingError, CommitPolicy, ConfigError, Json, RetryPolicy, RetryTopics, TopicPartition
from ottla.app.app import declarations_of
from ottla.stores import Memory
from ottla.telemetry.metrics.hooks import Counters
from ottla.testing.databases import PostgresServer

from .conftest import make_store, sqlite_store

SHELLS = ["threads", "asyncio", "columns"]
OFTEN = CommitPolicy(every_s=0.05)
QUICK = RetryPolicy(max_attempts=2, initial_s=0.01)


class Ledger:
    """A table of what handlers did, in the store's database."""

    def __init__(self, store: Any, name: str) -> None:
        self.table = "ledger_" + "".join(letter if letter.isalnum() else "_" for letter in name)[-40:]
        self._session = store.session()
        serial = "serial primary key" if store.dialect.name == "postgresql" else "integer primary key autoincrement"
        self._session.transaction.execute(f"create table {self.table} (place {serial}, n int)")

    @classmethod
    def of(cls, store: Any, table: str) -> Ledger:
        """The same table, over a new connection."""
        ledger = cls.__new__(cls)
        ledger.table, ledger._session = table, store.session()
        return ledger

    def add(self, transaction: Any, value: int) -> Any:
        return transaction.execute(f"insert into {self.table} (n) values ({value})")

    def rows(self) -> list[int]:
        found = self._session.transaction.execute(f"select n from {self.table} order by place").fetchall()
        return [row[0] for row in found]

    def count(self) -> int:
        """How many rows there are: to wait for them costs the database less than all of them each time."""
        found = self._session.transaction.execute(f"select count(*) from {self.table}").fetchall()
        return int(found[0][0])

    def close(self) -> None:
        self._session.close()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return make_store(request.param, tmp_path, request)


@pytest.fixture
def ledger(store: Any, kafka_group: str) -> Any:
    made = Ledger(store, kafka_group)
    yield made
    made.close()


def saved(store: Any, group: str, topic: str, partition: int = 0) -> int | None:
    session = store.session()
    try:
        start = session.read_offset(group, TopicPartition(topic, partition))
    finally:
        session.close()
    return None if start is None else start.next_offset


def declare(
    app: App, topic: str, store: Any, ledger: Ledger, *, is_async: bool = False, fail: Callable[..., Any]
) -> None:
    if is_async and store.dialect.name == "postgresql":

        @app.handler(topic, value=Json(), offsets=store)
        async def handle_async(value: int, transaction: Any) -> None:
            await ledger.add(transaction, value)
            fail(value)

    elif is_async:

        @app.handler(topic, value=Json(), offsets=store)
        async def handle_in_sqlite(value: int, transaction: Any) -> None:
            ledger.add(transaction, value)
            fail(value)

    else:

        @app.handler(topic, value=Json(), offsets=store)
        def handle(value: int, transaction: Any) -> None:
            ledger.add(transaction, value)
            fail(value)


@pytest.mark.representative("asyncio-sqlite-async def", "threads-sqlite-def")
@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
def test_work_and_offset_are_one_transaction_and_the_row_is_where_it_goes_on(
    is_async: bool,
    store: Any,
    ledger: Ledger,
    shell: Any,
    kafka: Any,
    kafka_topic: str,
    kafka_group: str,
    make_topic: Any,
    wait: Any,
) -> None:
    dead = make_topic("dead")

    def fail(value: int) -> None:
        if value in (3, 9):
            raise RuntimeError("poison")

    def app() -> App:
        made = App(
            kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, dead_letter_topic=dead, retry=QUICK
        )
        declare(made, kafka_topic, store, ledger, is_async=is_async, fail=fail)
        return made

    kafka.produce(kafka_topic, range(10), value=Json())
    first = shell.start(app())
    # The last record is dead-lettered, so no transaction passes it: the store is told all the same.
    wait(lambda: saved(store, kafka_group, kafka_topic) == 10, timeout_s=20)
    shell.stop(first)
    assert ledger.rows() == [0, 1, 2, 4, 5, 6, 7, 8], "each once, in order; the poison's row was rolled back"
    assert [record.value for record in kafka.consume_all(dead, at_least=2)] == [b"3", b"9"]

    session = store.session()  # a backup of the database is put back: it goes on where that was
    session.transaction.execute(f"delete from {ledger.table} where n >= 6")
    session.transaction.execute(f"update ottla_offsets set next_offset = 6 where consumer = '{kafka_group}'")
    session.close()
    kafka.produce(kafka_topic, [10], value=Json())
    second = shell.start(app())
    wait(lambda: saved(store, kafka_group, kafka_topic) == 11, timeout_s=20)
    shell.stop(second)
    assert ledger.rows() == [0, 1, 2, 4, 5, 6, 7, 8, 10]


def test_a_group_that_has_committed_begins_there_when_it_gets_a_store(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, wait: Any, tmp_path: Path
) -> None:
    store = sqlite_store(tmp_path)
    ledger = Ledger(store, "move")
    kafka.produce(kafka_topic, range(5), value=Json())
    before = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN)
    before.handler(kafka_topic, value=Json())(lambda value: None)
    shell.start(before)
    wait(lambda: committed(kafka_group, kafka_topic) == 5, timeout_s=20)
    shell.stop(before)

    after = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN)
    declare(after, kafka_topic, store, ledger, fail=lambda value: None)
    kafka.produce(kafka_topic, range(5, 8), value=Json())
    shell.start(after)
    wait(lambda: saved(store, kafka_group, kafka_topic) == 8, timeout_s=20)
    shell.stop(after)
    assert ledger.rows() == [5, 6, 7]
    ledger.close()


@pytest.mark.representative("threads")
def test_an_owner_that_was_fenced_writes_nothing_and_goes_on_behind_the_other(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Any, tmp_path: Path
) -> None:
    """Another member claims the partition while a run is inside its handler; the run's work is rolled back."""
    store = sqlite_store(tmp_path)
    ledger = Ledger(store, "fence")
    counters, entered, may_go = Counters(), threading.Event(), threading.Event()
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, hooks=counters)

    @app.handler(kafka_topic, value=Json(), offsets=store)
    def handle(value: int, transaction: Any) -> None:
        entered.set()
        may_go.wait(20)
        ledger.add(transaction, value)

    session = store.session()
    try:
        kafka.produce(kafka_topic, range(3), value=Json())
        # SQLite has one writer: the claim is there before the handler's transaction begins, as if it had been late.
        runs_epoch = threading.Event()
        shell.start(app)
        wait(lambda: declarations_of(app).routes[0].once and declarations_of(app).routes[0].once.epochs, timeout_s=20)
        once = declarations_of(app).routes[0].once
        assert once is not None
        may_go.set()
        wait(lambda: ledger.rows() == [0, 1, 2], timeout_s=20)
        session.claim_offsets(kafka_group, "another", [TopicPartition(kafka_topic, 0)])
        session.transaction.execute("update ottla_offsets set next_offset = 4")
        runs_epoch.set()
        kafka.produce(kafka_topic, range(3, 6), value=Json())
        wait(lambda: counters["run_fenced"] >= 1, timeout_s=20)
        assert ledger.rows() == [0, 1, 2]
        wait(lambda: ledger.rows() == [0, 1, 2, 4, 5], timeout_s=20)
    finally:
        session.close()
        ledger.close()


@pytest.mark.representative("threads")
def test_a_database_that_is_away_is_waited_for(
    postgres: PostgresServer,
    shell: Any,
    kafka: Any,
    kafka_topic: str,
    kafka_group: str,
    make_topic: Any,
    wait: Any,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """PostgreSQL dies while records are handled, and before others start; no record is lost, doubled or given up."""
    store = make_store("postgres", tmp_path, request)
    ledger = Ledger(store, kafka_group)
    ledger.close()
    dead = make_topic("dead")
    counters = Counters()
    app = App(
        kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        commit=OFTEN,
        dead_letter_topic=dead,
        retry=QUICK,
        hooks=counters,
    )
    declare(app, kafka_topic, store, ledger, fail=lambda value: None)
    shell.start(app)
    for start in range(0, 40, 10):
        kafka.produce(kafka_topic, range(start, start + 10), value=Json())
        if start % 20:
            wait(lambda before=start: (saved(store, kafka_group, kafka_topic) or 0) >= before, timeout_s=20)
            postgres.kill()
            kafka.produce(kafka_topic, [100 + start], value=Json())
            wait(lambda before=counters["record_retried"]: counters["record_retried"] > before, timeout_s=20)
            postgres.start()
    wait(lambda: saved(store, kafka_group, kafka_topic) == 42, timeout_s=60)
    shell.stop(app)
    session = store.session()
    found = session.transaction.execute(f"select n from {ledger.table} order by place").fetchall()
    session.close()
    log = [int(record.value or b"") for record in kafka.consume_all(kafka_topic)]
    assert [row[0] for row in found] == log
    assert kafka.consume_all(dead) == []


@pytest.mark.representative("threads-latest")
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_an_offset_beyond_the_log_stops_its_partition_and_names_both_numbers(
    reset: str, shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Any, tmp_path: Path
) -> None:
    """A topic that was made again has fewer records than the store remembers. Nothing of it is handled by a guess."""
    store = sqlite_store(tmp_path)
    ledger = Ledger(store, "beyond")
    session = store.session()
    session.claim_offsets(kafka_group, "before", [TopicPartition(kafka_topic, 0)])
    session.transaction.execute("update ottla_offsets set next_offset = 100")
    app = App(
        kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        commit=OFTEN,
        settings={"auto.offset.reset": reset},
        unready_after_s=2,
    )
    declare(app, kafka_topic, store, ledger, fail=lambda value: None)
    kafka.produce(kafka_topic, range(5), value=Json())
    try:
        shell.start(app)
        wait(lambda: any("offset 100" in problem for problem in app.health().problems), timeout_s=60)
        assert not app.health().is_ready
        kafka.produce(kafka_topic, [5], value=Json())
        assert ledger.rows() == []
        session.transaction.execute("update ottla_offsets set next_offset = 2")
        shell.ask(app, lambda runner: runner.resume())
        wait(lambda: ledger.rows() == [2, 3, 4, 5], timeout_s=60)
        assert app.health().is_ready
        shell.stop(app)
    finally:
        session.close()
        ledger.close()


@pytest.mark.representative("columns")
def test_an_app_is_not_ready_while_its_database_is_away(
    postgres: PostgresServer,
    shell: Any,
    kafka: Any,
    kafka_topic: str,
    kafka_group: str,
    wait: Any,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    store = make_store("postgres", tmp_path, request)
    ledger = Ledger(store, kafka_group)
    ledger.close()
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, unready_after_s=1)
    declare(app, kafka_topic, store, ledger, fail=lambda value: None)
    kafka.produce(kafka_topic, [1], value=Json())
    shell.start(app)
    wait(lambda: saved(store, kafka_group, kafka_topic) == 1, timeout_s=30)
    assert app.health().is_ready
    postgres.kill()
    try:
        kafka.produce(kafka_topic, [2], value=Json())
        wait(lambda: not app.health().is_ready, timeout_s=60)
        assert app.health().is_alive
    finally:
        postgres.start()
    wait(lambda: saved(store, kafka_group, kafka_topic) == 2, timeout_s=60)
    wait(lambda: app.health().is_ready, timeout_s=30)
    shell.stop(app)


@pytest.mark.representative("asyncio-def")
@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
def test_sessions_of_sqlalchemy_carry_the_work_and_the_offset(
    is_async: bool,
    postgres: PostgresServer,
    shell: Any,
    kafka: Any,
    kafka_topic: str,
    kafka_group: str,
    make_topic: Any,
    wait: Any,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    pytest.importorskip("greenlet")
    from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
    from sqlalchemy.orm import sessionmaker

    from ottla.stores import Sql

    plain = make_store("postgres", tmp_path, request)
    ledger = Ledger(plain, kafka_group)
    dead = make_topic("dead")
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, dead_letter_topic=dead, retry=QUICK)
    insert = sqlalchemy.text(f"insert into {ledger.table} (n) values (:n)")
    folder = {"host": str(postgres.folder)}
    url = sqlalchemy.URL.create("postgresql+psycopg", "postgres", database="postgres", query=folder)
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    if is_async:
        own = create_async_engine(url, poolclass=sqlalchemy.NullPool)
        store = Sql(async_sessionmaker(own), dialect="postgresql", claim_with=sessionmaker(engine))

        @app.handler(kafka_topic, value=Json(), offsets=store)
        async def handle_async(value: int, transaction: Any) -> None:
            await transaction.execute(insert, {"n": value})
            if value == 3:
                raise RuntimeError("poison")

    else:
        store = Sql(sessionmaker(engine), dialect="postgresql")

        @app.handler(kafka_topic, value=Json(), offsets=store)
        def handle(value: int, transaction: Any) -> None:
            transaction.execute(insert, {"n": value})
            if value == 3:
                raise RuntimeError("poison")

    kafka.produce(kafka_topic, range(8), value=Json())
    shell.start(app)
    wait(lambda: saved(plain, kafka_group, kafka_topic) == 8, timeout_s=30)
    shell.stop(app)
    assert ledger.rows() == [0, 1, 2, 4, 5, 6, 7]
    ledger.close()
    engine.dispose()


@pytest.mark.representative("columns-postgres")
def test_batches_are_one_transaction_and_a_bad_record_in_one_is_found(
    store: Any, ledger: Ledger, shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, make_topic: Any, wait: Any
) -> None:
    dead = make_topic("dead")
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, dead_letter_topic=dead, retry=QUICK)

    @app.handler(kafka_topic, value=Json(), batch=True, offsets=store)
    def handle(values: list[int], transaction: Any) -> None:
        for value in values:
            ledger.add(transaction, value)
        if 3 in values:
            raise RuntimeError("poison")

    kafka.produce(kafka_topic, range(8), value=Json())
    shell.start(app)
    wait(lambda: saved(store, kafka_group, kafka_topic) == 8, timeout_s=20)
    shell.stop(app)
    assert ledger.rows() == [0, 1, 2, 4, 5, 6, 7]
    assert [record.value for record in kafka.consume_all(dead, at_least=1)] == [b"3"]


@pytest.mark.representative("asyncio-sqlite")
def test_partitions_that_move_between_members_are_handled_once_and_in_order(
    store: Any, ledger: Ledger, shell: Any, kafka: Any, make_topic: Any, kafka_group: str, wait: Any
) -> None:
    topic = make_topic("moving", partitions=4)

    def app() -> App:
        made = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN)
        declare(made, topic, store, ledger, fail=lambda value: None)
        return made

    def produce(first: int) -> None:
        kafka.produce(topic, range(first, first + 40), value=Json(), keys=map(str, range(first, first + 40)), key=str)

    produce(0)
    one = shell.start(app())
    wait(lambda: ledger.count() > 0, timeout_s=20)
    produce(40)
    two = shell.start(app())
    produce(80)
    wait(lambda: ledger.count() >= 60, timeout_s=30)
    shell.stop(one)
    produce(120)
    wait(lambda: ledger.count() >= 160, timeout_s=30)
    shell.stop(two)
    rows = ledger.rows()
    log = kafka.consume_all(topic, value=Json())
    assert sorted(rows) == list(range(160)), "one row per record"
    for partition in range(4):
        own = [record.value for record in log if record.partition == partition]
        assert [value for value in rows if value in set(own)] == own, f"in the order of partition {partition}"


def test_what_cannot_work_is_refused_where_it_is_declared(tmp_path: Path) -> None:
    app, store = App("g", bootstrap_servers="localhost:1"), sqlite_store(tmp_path)

    def handle(value: int, transaction: Any) -> None: ...

    with pytest.raises(BindingError, match="needs offsets= or inbox= with a database"):
        app.handler("t", value=Json())(handle)
    with pytest.raises(ConfigError, match="needs ordering='partition'"):
        app.handler("t", value=Json(), offsets=store, ordering="key")(handle)
    with pytest.raises(ConfigError, match="not in retry topics"):
        app.handler("t", value=Json(), offsets=store, retry_topics=RetryTopics(delays_s=(1,)))(handle)
    with pytest.raises(ConfigError, match="wanted a database store"):
        app.handler("t", value=Json(), offsets=Memory())(handle)  # type: ignore[arg-type]
