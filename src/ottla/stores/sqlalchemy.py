"""A store over a service's SQLAlchemy sessions: `Sql(sessionmaker, dialect="postgresql")`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.clock import Clock
from ottla.errors import ConfigError
from ottla.stores.sql_sessions import Parameters, Rows
from ottla.stores.sql_store import SqlStore
from ottla.stores.sql_text import DIALECTS, Statement

try:
    from sqlalchemy import text
    from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError
    from sqlalchemy.exc import TimeoutError as PoolTimeout
except ImportError as problem:
    raise ConfigError("ottla.stores.Sql needs SQLAlchemy 2: pip install 'ottla[sqlalchemy]'") from problem


class Sql(SqlStore):
    """Sessions of SQLAlchemy 2. `make_session` is a `sessionmaker`, or an `async_sessionmaker` for async handlers.

    The handler gets the session as `transaction`, a new one for each run. The store's statements run in its
    transaction, after a flush. `dialect` is ``"postgresql"`` or ``"sqlite"``. `is_outage` says which errors are the
    database's and not the record's; without it those that SQLAlchemy calls `OperationalError`.

    For `offsets=` of an async handler give a plain `sessionmaker` too, as `claim_with`: a thread claims partitions.

    With SQLite a transaction of the driver begins late: let SQLAlchemy emit `BEGIN IMMEDIATE`, as its documentation
    shows, or use `Sqlite`. Raises `ConfigError` for another `dialect`.
    """

    def __init__(
        self,
        make_session: Callable[[], Any],
        *,
        dialect: str,
        claim_with: Callable[[], Any] | None = None,
        is_outage: Callable[[BaseException], bool] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if dialect not in DIALECTS:
            raise ConfigError(f"Sql: dialect: found {dialect!r}, wanted one of {', '.join(DIALECTS)}")
        super().__init__(DIALECTS[dialect], clock)
        self._make_session = make_session
        self._claim_with = claim_with or make_session
        self._is_outage = is_outage

    @property
    def stays_in_process(self) -> bool:
        """Return whether the database is one of SQLite in memory, as far as the `sessionmaker` shows that."""
        url = getattr(getattr(self._make_session, "kw", {}).get("bind"), "url", None)
        return url is not None and url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:")

    def connection(self) -> _SqlAlchemyConnection:
        """Return a connection for an outbox, without checking the inbox tables."""
        return _SqlAlchemyConnection(self._claim_with)

    async def _async_connection(self) -> _AsyncSqlAlchemyConnection:
        return _AsyncSqlAlchemyConnection(self._make_session)

    def _is_unusable(self, error: Exception) -> bool:
        is_missing = isinstance(error, OperationalError) and "no such table" in str(error)
        return is_missing or isinstance(error, ProgrammingError)

    def execute_in(self, transaction: Any, statement: Statement, parameters: Parameters) -> Any:
        """Execute in the transaction of a session or connection of SQLAlchemy."""
        return transaction.execute(text(statement.text), _named(statement, parameters))

    def __repr__(self) -> str:
        return f"Sql({self._make_session!r})"

    def is_outage(self, error: BaseException) -> bool:
        """Return whether the database is unavailable, so that the same work may succeed later."""
        if self._is_outage is not None:
            return self._is_outage(error)
        if isinstance(error, DBAPIError) and error.connection_invalidated:
            return True
        return isinstance(error, OperationalError | PoolTimeout) and "no such" not in str(error)


def _named(statement: Statement, parameters: Parameters) -> Parameters:
    return {name: parameters[name] for name in statement.names}


class _SessionHolder:
    """The session of a connection, between `begin` and `close`."""

    def __init__(self, make_session: Callable[[], Any]) -> None:
        self._make_session = make_session
        self.transaction: Any = None

    @property
    def is_in_transaction(self) -> bool:
        return self.transaction is not None and bool(self.transaction.in_transaction())


class _SqlAlchemyConnection(_SessionHolder):
    def begin(self) -> None:
        self.transaction = self._make_session()
        self.transaction.connection()

    def commit(self) -> None:
        self.transaction.commit()
        self.close()

    def rollback(self) -> None:
        if self.transaction is not None:
            self.transaction.rollback()
            self.close()

    def run(self, statement: Statement, parameters: Parameters) -> Rows:
        self.transaction.flush()
        rows: Rows = self.transaction.execute(text(statement.text), _named(statement, parameters)).fetchall()
        return rows

    def run_alone(self, statement: Statement, parameters: Parameters) -> Rows:
        with self._make_session() as session:
            rows: Rows = session.execute(text(statement.text), _named(statement, parameters)).fetchall()
            session.commit()
        return rows

    def create(self, schema: str) -> None:
        with self._make_session() as session:
            for statement in schema.split(";\n"):  # a driver takes one at a time
                if statement.strip():
                    session.execute(text(statement))
            session.commit()

    def close(self) -> None:
        session, self.transaction = self.transaction, None
        if session is not None:
            session.close()


class _AsyncSqlAlchemyConnection(_SessionHolder):
    async def begin(self) -> None:
        self.transaction = self._make_session()
        await self.transaction.connection()

    async def commit(self) -> None:
        await self.transaction.commit()
        await self.close()

    async def rollback(self) -> None:
        if self.transaction is not None:
            await self.transaction.rollback()
            await self.close()

    async def run(self, statement: Statement, parameters: Parameters) -> Rows:
        await self.transaction.flush()
        rows: Rows = (await self.transaction.execute(text(statement.text), _named(statement, parameters))).fetchall()
        return rows

    async def run_alone(self, statement: Statement, parameters: Parameters) -> Rows:
        async with self._make_session() as session:
            rows: Rows = (await session.execute(text(statement.text), _named(statement, parameters))).fetchall()
            await session.commit()
        return rows

    async def close(self) -> None:
        session, self.transaction = self.transaction, None
        if session is not None:
            await session.close()
