"""What the stores over databases share: their tables are looked for before a session is used."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.clock import Clock, SystemClock
from ottla.errors import ConfigError
from ottla.stores.sql_sessions import AsyncConnection, AsyncSqlSession, DatabaseConnection, SqlSession
from ottla.stores.sql_text import Dialect


class SqlStore(ABC):
    """A database that is a `TransactionStore` and a `ClaimStore`: both kinds of session are one."""

    _session_type = SqlSession
    _async_session_type = AsyncSqlSession

    def __init__(self, dialect: Dialect, clock: Clock | None = None) -> None:
        self.dialect = dialect
        self.schema = dialect.schema
        """The statements that create the tables."""
        self._clock = clock or SystemClock()

    @abstractmethod
    def connection(self) -> DatabaseConnection:
        """Return a connection for a thread, without checking the inbox tables."""

    @abstractmethod
    async def _async_connection(self) -> AsyncConnection:
        """Return a connection for an event loop."""

    @abstractmethod
    def _is_unusable(self, error: Exception) -> bool:
        """Return whether a table is missing, or may not be read."""

    def session(self) -> SqlSession:
        """Return a session for a thread, with marks in the handler's transaction. Raises `ConfigError` if a table is
        missing.
        """
        connection = self.connection()
        try:
            for table, statement in self.dialect.exists.items():
                with self._usable(table):
                    connection.run_alone(statement, {})
        except BaseException:
            connection.close()
            raise
        return self._session_type(connection, self.dialect, self._clock)

    async def async_session(self) -> AsyncSqlSession:
        """Return a session for an event loop, as `session`."""
        connection = await self._async_connection()
        try:
            for table, statement in self.dialect.exists.items():
                with self._usable(table):
                    await connection.run_alone(statement, {})
        except BaseException:
            await connection.close()
            raise
        return self._async_session_type(connection, self.dialect, self._clock)

    def claims(self) -> SqlSession:
        """Return a session for a thread, with claims beside the handler's work. Raises `ConfigError` if a table is
        missing.
        """
        return self.session()

    async def async_claims(self) -> AsyncSqlSession:
        """Return a session for an event loop, as `claims`."""
        return await self.async_session()

    @contextmanager
    def _usable(self, table: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not self._is_unusable(error):
                raise
            remedy = "Call create_tables() once, or put" if hasattr(self, "create_tables") else "Put"
            raise ConfigError(
                f"{self!r}: no usable table {table} ({str(error).splitlines()[0]}). {remedy} the statements in .schema "
                "into your migrations"
            ) from error
