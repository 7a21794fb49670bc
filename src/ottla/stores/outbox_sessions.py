"""What a relay asks of the database of an outbox, over the connections that the stores have."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol, runtime_checkable

from ottla.errors import ConfigError
from ottla.stores.outbox_sql import OUTBOX_DIALECTS, OutboxDialect
from ottla.stores.sql_sessions import Connection, Parameters
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
    """How much waits: rows (counted up to 100,000), the age of the oldest (0 if none waits), refused rows, and why the
    first of them was refused."""

    waiting: int
    oldest_ms: int
    parked: int
    reason: str | None


class OutboxConnection(Connection, Protocol):
    """A connection that can also make tables."""

    def create(self, schema: str) -> None:
        """Execute the statements of a schema."""
        ...


@runtime_checkable
class OutboxStore(Protocol):
    """A store that can have an outbox: PostgreSQL, SQLite, and SQLAlchemy's sessions of them."""

    dialect: Dialect

    def connection(self) -> OutboxConnection:
        """A new connection for a thread, in autocommit mode."""
        ...

    def execute_in(self, transaction: Any, statement: Statement, parameters: Parameters) -> Any:
        """Execute in the open transaction of a connection or session of the user's. To be awaited if that is async.

        Raises `InputError` where no transaction is open and none would be begun.
        """
        ...

    def is_outage(self, error: BaseException) -> bool: ...


class OutboxSession:
    """A relay's connection. Every method is a transaction of its own, and may raise what the driver raises."""

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
        """Raise `ConfigError` unless this role may do all that a relay does.

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
        """Become the relay that works, or go on being it, for `lease_ms`. False while another one is."""
        return bool(self._connection.run_alone(self._sql.claim, {"owner": owner, "lease_ms": lease_ms}))

    def release(self, owner: str) -> None:
        """Another relay may work now."""
        self._connection.run_alone(self._sql.release, {"owner": owner})

    def read(self, *, skipped: Collection[str], most_rows: int, most_bytes: int) -> list[OutboxRow]:
        """The first rows that may be relayed, in their order: without those of the skipped topics, and those behind a
        parked row of their key. At least one, if there is any, however large it is."""
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
        """These rows were relayed."""
        self._connection.run_alone(self._sql.delete, {"ids": self._sql.as_list(list(ids))})

    def park(self, number: int, reason: str) -> None:
        """This row was refused. It is kept, and its key waits."""
        self._connection.run_alone(self._sql.park, {"id": number, "reason": reason.replace("\0", "")})

    def lag(self) -> OutboxLag:
        waiting, oldest_ms, parked, reason = self._connection.run_alone(self._sql.lag, {})[0]
        return OutboxLag(waiting=waiting, oldest_ms=oldest_ms or 0, parked=parked, reason=reason)

    def show(self, *, most_rows: int, all_rows: bool) -> Sequence[Sequence[Any]]:
        """(id, topic, partition, key, bytes of the value, message id, age in ms, reason): of parked rows, or all."""
        return self._connection.run_alone(self._sql.show, {"most_rows": most_rows, "all": int(all_rows)})

    def refused(self, ids: Sequence[int]) -> Sequence[Sequence[Any]]:
        """Of these rows those that were refused, each as `show` gives it."""
        return self._connection.run_alone(self._sql.refused, {"ids": self._sql.as_list(list(ids))})

    def unpark(self, ids: Sequence[int]) -> list[int]:
        """Have these refused rows tried again. Returns those that were refused."""
        return [row[0] for row in self._connection.run_alone(self._sql.unpark, {"ids": self._sql.as_list(list(ids))})]

    def drop(self, ids: Sequence[int]) -> list[int]:
        """Delete these refused rows. Returns those that were refused."""
        return [row[0] for row in self._connection.run_alone(self._sql.drop, {"ids": self._sql.as_list(list(ids))})]

    def relay(self) -> tuple[str, int] | None:
        """(which relay worked last, for how many more ms it is the one that works); None before the first."""
        rows = self._connection.run_alone(self._sql.relay, {})
        return (rows[0][0], rows[0][1]) if rows else None

    def close(self) -> None:
        self._connection.close()


def _is_denied(error: BaseException) -> bool:
    """PostgreSQL's `insufficient_privilege`, also where SQLAlchemy has wrapped it."""
    return getattr(getattr(error, "orig", error), "sqlstate", None) == "42501"
