"""Database operations of an outbox relay, over the stores' connections."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol, runtime_checkable

from ottla.errors import ConfigError
from ottla.stores.outbox_sql import OUTBOX_DIALECTS, OutboxDialect
from ottla.stores.sql_sessions import DatabaseConnection, Parameters
from ottla.stores.sql_text import Dialect, Statement
from ottla_wire.facts import fact


@fact
class OutboxRow:
    """One record that waits. `headers` is JSON, as the column."""

    id: int
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: str
    timestamp_ms: int
    message_id: str


@fact
class OutboxLag:
    """Backlog: rows (counted up to 100,000), age of the oldest in ms (0 without rows), refused rows, and the reason of
    the first refused row.
    """

    waiting: int
    oldest_ms: int
    parked: int
    reason: str | None


@runtime_checkable
class OutboxStore(Protocol):
    """A store that can have an outbox: PostgreSQL, SQLite, and SQLAlchemy's sessions of them."""

    dialect: Dialect

    def connection(self) -> DatabaseConnection:
        """Return a new connection for a thread, in autocommit mode."""
        ...

    def execute_in(self, transaction: Any, statement: Statement, parameters: Parameters) -> Any:
        """Execute in the user's open transaction. Awaitable for an async connection or session.

        Raises `InputError` where no transaction is open and none would be begun.
        """
        ...

    def is_outage(self, error: BaseException) -> bool: ...


class OutboxSession:
    """A relay's connection. Every method is a transaction of its own, and may raise the driver's errors."""

    def __init__(self, store: OutboxStore) -> None:
        self._sql: OutboxDialect = OUTBOX_DIALECTS[store.dialect.name]
        self._connection = store.connection()
        try:
            self._connection.run_alone(self._sql.exists, {})
        except Exception as error:
            self.close()
            if store.is_outage(error):
                raise
            problem = str(error).splitlines()[0]
            if _is_denied(error):
                raise ConfigError(f"{store!r}: {problem}. Grant this role select on the table") from error
            raise ConfigError(
                f"{store!r}: no usable table ottla_outbox ({problem}). Call create_tables() of the outbox once, or put "
                "the statements in its .schema into your migrations"
            ) from error
        self._store = store

    def check_rights(self) -> None:
        """Raise `ConfigError` unless this role has all rights of a relay.

        A relay that may read rows and not delete them would send the same rows for ever.
        """
        if self._sql.missing_rights is None:
            return
        missing: dict[str, list[str]] = {}
        for right, table in self._connection.run_alone(self._sql.missing_rights, {}):
            missing.setdefault(table, []).append(right)
        if missing:
            grants = "; ".join(f"grant {', '.join(rights)} on {table}" for table, rights in missing.items())
            raise ConfigError(f"{self._store!r}: this role may not do what a relay does. Wanted: {grants}")

    def claim(self, owner: str, lease_ms: int) -> bool:
        """Become or stay the active relay for `lease_ms`. Returns False while another relay is active."""
        return bool(self._connection.run_alone(self._sql.claim, {"owner": owner, "lease_ms": lease_ms}))

    def release(self, owner: str) -> None:
        """Release the lease for another relay."""
        self._connection.run_alone(self._sql.release, {"owner": owner})

    def read(self, *, skipped: Collection[str], most_rows: int, most_bytes: int) -> list[OutboxRow]:
        """Return the first rows to relay, in order: without skipped topics and without rows behind a refused row of
        their key. Returns at least one row if any exists, however large.
        """
        found = self._connection.run_alone(
            self._sql.read,
            {"skipped": self._sql.as_list(list(skipped)), "most_rows": most_rows, "most_bytes": most_bytes},
        )
        return [
            OutboxRow(
                id=number,
                topic=topic,
                partition=partition,
                key=None if key is None else bytes(key),
                value=None if value is None else bytes(value),
                headers=headers,
                timestamp_ms=timestamp_ms,
                message_id=message_id,
            )
            for number, topic, partition, key, value, headers, timestamp_ms, message_id in found
        ]

    def delete(self, ids: Sequence[int]) -> None:
        """Delete rows that were relayed."""
        self._connection.run_alone(self._sql.delete, {"ids": self._sql.as_list(list(ids))})

    def park(self, number: int, reason: str) -> None:
        """Keep a refused row; its key waits."""
        self._connection.run_alone(self._sql.park, {"id": number, "reason": reason.replace("\0", "")})

    def lag(self) -> OutboxLag:
        waiting, oldest_ms, parked, reason = self._connection.run_alone(self._sql.lag, {})[0]
        return OutboxLag(waiting=waiting, oldest_ms=oldest_ms or 0, parked=parked, reason=reason)

    def show(self, *, most_rows: int, all_rows: bool) -> Sequence[Sequence[Any]]:
        """Return (id, topic, partition, key, bytes of the value, message id, age in ms, reason) of refused rows, or of
        all.
        """
        return self._connection.run_alone(self._sql.show, {"most_rows": most_rows, "all": int(all_rows)})

    def refused(self, ids: Sequence[int]) -> Sequence[Sequence[Any]]:
        """Return which of these rows are refused, each as `show` returns it."""
        return self._connection.run_alone(self._sql.refused, {"ids": self._sql.as_list(list(ids))})

    def unpark(self, ids: Sequence[int]) -> list[int]:
        """Retry these refused rows. Returns the rows that were refused."""
        return [row[0] for row in self._connection.run_alone(self._sql.unpark, {"ids": self._sql.as_list(list(ids))})]

    def drop(self, ids: Sequence[int]) -> list[int]:
        """Delete these refused rows. Returns the rows that were refused."""
        return [row[0] for row in self._connection.run_alone(self._sql.drop, {"ids": self._sql.as_list(list(ids))})]

    def relay(self) -> tuple[str, int] | None:
        """Return (last active relay, ms for which its lease still holds); None before the first."""
        rows = self._connection.run_alone(self._sql.relay, {})
        return (rows[0][0], rows[0][1]) if rows else None

    def close(self) -> None:
        self._connection.close()


def _is_denied(error: BaseException) -> bool:
    """Return whether it is PostgreSQL's `insufficient_privilege`, also wrapped by SQLAlchemy."""
    return getattr(getattr(error, "orig", error), "sqlstate", None) == "42501"
