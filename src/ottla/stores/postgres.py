"""PostgreSQL as a store, by psycopg 3: `pip install "ottla[postgres]"`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from ottla.errors import ConfigError, InputError
from ottla.stores.sql_sessions import Parameters, Rows, create_tables
from ottla.stores.sql_store import SqlStore
from ottla.stores.sql_text import POSTGRESQL, Statement, array_literal

try:
    import psycopg
    from psycopg import AsyncConnection, Connection
    from psycopg.pq import TransactionStatus
except ImportError as problem:
    raise ConfigError("ottla.stores.Postgres needs psycopg: pip install 'ottla[postgres]'") from problem

_AWAY: Final = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.IdleInTransactionSessionTimeout)

_OVER_PSYCOPG: Final = replace(POSTGRESQL, as_list=array_literal)

_OF_THE_RECORD: Final = (psycopg.errors.QueryCanceled,)
"""A statement of the handler took too long: the record may be the cause, so it counts as a failure."""


class Postgres(SqlStore):
    """A PostgreSQL database: `Postgres("postgresql://localhost/billing")`.

    With a pool or settings of your own: `Postgres(connect=pool.getconn, close=pool.putconn)`, and for async handlers
    `async_connect=`, `async_close=`. Each worker keeps one connection while the app runs, in autocommit mode: the
    store begins and commits. Handlers get the `psycopg.Connection`, async ones the `psycopg.AsyncConnection`.

    Raises `ConfigError` when neither an address nor a way to connect is given.
    """

    def __init__(
        self,
        conninfo: str | None = None,
        *,
        connect: Callable[[], Connection[Any]] | None = None,
        close: Callable[[Any], Any] | None = None,
        async_connect: Callable[[], Awaitable[AsyncConnection[Any]]] | None = None,
        async_close: Callable[[Any], Awaitable[Any]] | None = None,
    ) -> None:
        super().__init__(_OVER_PSYCOPG)
        if conninfo is None and connect is None and async_connect is None:
            raise ConfigError("Postgres: give a connection string, or connect= or async_connect=")
        self._conninfo = conninfo
        self._connect = connect
        self._close = close
        self._async_connect = async_connect
        self._async_close = async_close

    def create_tables(self) -> None:
        """Create missing tables."""
        create_tables(self.connection(), self.schema)

    async def _async_connection(self) -> _AsyncPostgresConnection:
        if self._async_connect is not None:
            connection = await self._async_connect()
            await connection.set_autocommit(True)
        elif self._conninfo is not None:
            connection = await AsyncConnection.connect(self._conninfo, autocommit=True)
        else:
            raise ConfigError("Postgres: an async handler needs a connection string or async_connect=")
        return _AsyncPostgresConnection(connection, self._async_close)

    def _is_unusable(self, error: Exception) -> bool:
        return isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.InsufficientPrivilege)

    def connection(self) -> _PostgresConnection:
        """Return a connection for an outbox, without checking the inbox tables."""
        return _PostgresConnection(self._open(), self._close)

    def execute_in(self, transaction: Any, statement: Statement, parameters: Parameters) -> Any:
        """Execute in the user's transaction, of a `Connection` or `Cursor`, sync or async.

        Raises `InputError` on a connection in autocommit mode with no transaction open.
        """
        connection = getattr(transaction, "connection", transaction)
        is_open = connection.info.transaction_status != TransactionStatus.IDLE
        if not is_open and connection.autocommit:
            raise InputError(
                "no transaction is open on this connection, which is in autocommit mode: the record would be committed "
                "by itself. Add it in the transaction of your own rows: with connection.transaction(): ..."
            )
        return transaction.execute(statement.percent, parameters)

    def is_outage(self, error: BaseException) -> bool:
        """Return whether the database is unavailable, so that the same work may succeed later."""
        return isinstance(error, _AWAY) and not isinstance(error, _OF_THE_RECORD)

    def __repr__(self) -> str:
        return f"Postgres({_shown(self._conninfo) if self._conninfo is not None else self._connect!r})"

    def _open(self) -> Connection[Any]:
        if self._connect is not None:
            connection = self._connect()
            connection.autocommit = True
            return connection
        if self._conninfo is None:
            raise ConfigError("Postgres: a handler that is not async needs a connection string or connect=")
        return Connection.connect(self._conninfo, autocommit=True)


def _check_committed(answer: str | None) -> None:
    # PostgreSQL answers the commit of a failed transaction with ROLLBACK, and no error.
    if answer != "COMMIT":
        raise psycopg.errors.InFailedSqlTransaction(
            "a statement of the handler failed, and the handler went on: PostgreSQL rolled the transaction back. For a "
            "part that may fail use a savepoint: with transaction.transaction(): ..."
        )


def _shown(conninfo: str) -> str:
    """Return the connection string without passwords."""
    try:
        parts = psycopg.conninfo.conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:
        return "..."  # not a connection string: anything in it may be the password
    return " ".join(f"{name}={value}" for name, value in parts.items() if "password" not in name)


class _Connected:
    """An open connection of psycopg, and how it is given back."""

    def __init__(self, connection: Any, close: Callable[[Any], Any] | None) -> None:
        self.transaction: Any = connection
        self._give_back = close

    @property
    def is_in_transaction(self) -> bool:
        return bool(self.transaction.info.transaction_status != TransactionStatus.IDLE)

    def begin(self) -> Any:
        return self.transaction.execute("begin")

    def rollback(self) -> Any:
        return self.transaction.rollback()

    def close(self) -> Any:
        if self._give_back is None:
            return self.transaction.close()
        return self._give_back(self.transaction)  # a broken one too: its pool opens another in its place


class _PostgresConnection(_Connected):
    def commit(self) -> None:
        _check_committed(self.transaction.execute("commit").statusmessage)

    def run(self, statement: Statement, parameters: Parameters) -> Rows:
        rows: Rows = self.transaction.execute(statement.percent, parameters).fetchall()
        return rows

    run_alone = run

    def create(self, schema: str) -> None:
        self.transaction.execute(schema)


class _AsyncPostgresConnection(_Connected):
    async def commit(self) -> None:
        _check_committed((await self.transaction.execute("commit")).statusmessage)

    async def run(self, statement: Statement, parameters: Parameters) -> Rows:
        cursor = await self.transaction.execute(statement.percent, parameters)
        rows: Rows = await cursor.fetchall()
        return rows

    run_alone = run
