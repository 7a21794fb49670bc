"""Sessions of SQL stores: the statements of each operation, written once for threads and event loops.

An operation is a generator: it yields statements with their parameters and is given the rows of each. `inside` and
`alone` make a method of it: `SqlSession` carries it out at once with a `DatabaseConnection`, `AsyncSqlSession` returns
what is to be awaited. An adapter of a driver is the few methods of a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from ottla.clock import Clock
from ottla.errors import LifecycleError
from ottla.records import TopicPartition
from ottla.stepping import Procedure, drive, drive_async
from ottla.stores.protocols import Start
from ottla.stores.sql_text import Dialect, Statement

P = ParamSpec("P")
T = TypeVar("T")

Rows: TypeAlias = Sequence[Sequence[Any]]
Parameters: TypeAlias = dict[str, Any]
Operation: TypeAlias = Procedure[tuple[Statement, Parameters], Rows, T]


class DatabaseConnection(Protocol):
    """One connection of a driver, or one session of a mapper."""

    @property
    def transaction(self) -> Any:
        """Return the object that handlers get."""
        ...

    @property
    def is_in_transaction(self) -> bool: ...

    def begin(self) -> None: ...

    def commit(self) -> None:
        """Commit, or raise. Must not return if the database rolled back."""
        ...

    def rollback(self) -> None: ...

    def run(self, statement: Statement, parameters: Parameters) -> Rows:
        """Run a statement in the open transaction."""
        ...

    def run_alone(self, statement: Statement, parameters: Parameters) -> Rows:
        """Run a statement as a transaction of its own."""
        ...

    def create(self, schema: str) -> None:
        """Execute the statements of a schema."""
        ...

    def close(self) -> None: ...


class AsyncConnection(Protocol):
    """`DatabaseConnection` for an event loop."""

    @property
    def transaction(self) -> Any: ...

    @property
    def is_in_transaction(self) -> bool: ...

    async def begin(self) -> None: ...

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...

    async def run(self, statement: Statement, parameters: Parameters) -> Rows: ...

    async def run_alone(self, statement: Statement, parameters: Parameters) -> Rows: ...

    async def close(self) -> None: ...


def create_tables(connection: DatabaseConnection, schema: str) -> None:
    """Create missing tables, and close the connection."""
    try:
        connection.create(schema)
    finally:
        connection.close()


def alone(operation: Callable[Concatenate[Any, P], Operation[Any]]) -> Callable[Concatenate[Any, P], Any]:
    """Return the method that carries the operation out, each of its statements as a transaction of its own."""

    @wraps(operation)
    def method(self: Any, /, *args: P.args, **options: P.kwargs) -> Any:
        return self._carry_out_alone(operation(self, *args, **options))

    return method


def inside(operation: Callable[Concatenate[Any, P], Operation[Any]]) -> Callable[Concatenate[Any, P], Any]:
    """Return the method that carries the operation out in the open transaction."""

    @wraps(operation)
    def method(self: Any, /, *args: P.args, **options: P.kwargs) -> Any:
        return self._carry_out_inside(operation(self, *args, **options))

    return method


class SessionMethods:
    """Methods of both kinds of session. `dialect` and the clock decide the statements and their parameters."""

    _connection: DatabaseConnection | AsyncConnection

    def __init__(self, dialect: Dialect, clock: Clock) -> None:
        self.dialect = dialect
        self._clock = clock

    @property
    def transaction(self) -> Any:
        return self._connection.transaction

    def rollback(self) -> Any:
        return self._connection.rollback()

    @inside
    def mark(self, consumer: str, ids: Sequence[str]) -> Operation[Collection[str]]:
        rows = yield self.dialect.mark, self._ids(consumer, ids)
        return {row[0] for row in rows}

    @inside
    def unmark(self, consumer: str, ids: Sequence[str]) -> Operation[None]:
        yield self.dialect.unmark, self._ids(consumer, ids)

    @alone
    def claim_offsets(
        self, consumer: str, member: str, partitions: Sequence[TopicPartition]
    ) -> Operation[Mapping[TopicPartition, Start]]:
        topics = self.dialect.as_list([name.topic for name in partitions])
        numbers = self.dialect.as_list([name.partition for name in partitions])
        given = {"consumer": consumer, "member": member, "topics": topics, "partitions": numbers}
        rows = yield self.dialect.claim_offsets, given
        return {TopicPartition(topic, part): Start(offset, epoch) for topic, part, offset, epoch in rows}

    @inside
    def save_offset(self, consumer: str, partition: TopicPartition, next_offset: int, epoch: int) -> Operation[bool]:
        rows = yield self.dialect.save_offset, _position(consumer, partition, next_offset, epoch)
        return bool(rows) and rows[0][0] == 1

    @alone
    def pass_offset(self, consumer: str, partition: TopicPartition, next_offset: int, epoch: int) -> Operation[None]:
        yield self.dialect.pass_offset, _position(consumer, partition, next_offset, epoch)

    @alone
    def read_offset(self, consumer: str, partition: TopicPartition) -> Operation[Start | None]:
        given = {"consumer": consumer, "topic": partition.topic, "partition": partition.partition}
        rows = yield self.dialect.read_offset, given
        return Start(rows[0][0], rows[0][1]) if rows else None

    @alone
    def list_offsets(self, consumer: str) -> Operation[Rows]:
        """Return (topic, partition, next offset, epoch, member, time of the last change) of each partition."""
        return (yield self.dialect.list_offsets, {"consumer": consumer})

    @alone
    def reset_offset(self, consumer: str, partition: TopicPartition, next_offset: int) -> Operation[None]:
        """Set where a partition continues, and fence its owner."""
        yield self.dialect.reset_offset, _position(consumer, partition, next_offset, 0)

    @alone
    def claim(self, consumer: str, ids: Sequence[str], *, owner: str, lease_ms: int) -> Operation[Collection[str]]:
        rows = yield self.dialect.claim, self._ids(consumer, ids, owner=owner, lease_ms=lease_ms)
        return {row[0] for row in rows}

    @alone
    def look(self, consumer: str, ids: Sequence[str]) -> Operation[Mapping[str, int | None]]:
        rows = yield self.dialect.look, self._ids(consumer, ids)
        return {row[0]: row[1] for row in rows}

    @alone
    def renew(self, consumer: str, ids: Sequence[str], *, owner: str, lease_ms: int) -> Operation[int]:
        rows = yield self.dialect.renew, self._ids(consumer, ids, owner=owner, lease_ms=lease_ms)
        return len(rows)

    @alone
    def finish(self, consumer: str, ids: Sequence[str], *, window_ms: int) -> Operation[None]:
        yield self.dialect.finish, self._ids(consumer, ids)

    @alone
    def release(self, consumer: str, ids: Sequence[str], *, owner: str) -> Operation[None]:
        yield self.dialect.release, self._ids(consumer, ids, owner=owner)

    @alone
    def clean(self, consumer: str, *, window_ms: int) -> Operation[int]:
        rows = yield self.dialect.clean, {"consumer": consumer, "window_ms": window_ms, "now_ms": self._clock.now_ms()}
        return len(rows)

    def _ids(self, consumer: str, ids: Sequence[str], **more: Any) -> Parameters:
        now_ms = self._clock.now_ms()
        return {"consumer": consumer, "ids": self.dialect.as_list(list(ids)), "now_ms": now_ms, **more}

    def _check_open(self) -> None:
        if not self._connection.is_in_transaction:
            raise LifecycleError(
                "the handler ended the run's transaction: it called commit() or rollback(), or used the connection as "
                "a context manager. Ottla commits it with the offset; for a part that may fail, use a savepoint"
            )


def _position(consumer: str, name: TopicPartition, next_offset: int, epoch: int) -> Parameters:
    return {
        "consumer": consumer,
        "topic": name.topic,
        "partition": name.partition,
        "next_offset": next_offset,
        "epoch": epoch,
    }


class SqlSession(SessionMethods):
    """A session for threads: `TransactionSession` and `ClaimSession` in one."""

    _connection: DatabaseConnection

    def __init__(self, connection: DatabaseConnection, dialect: Dialect, clock: Clock) -> None:
        super().__init__(dialect, clock)
        self._connection = connection

    def begin(self) -> None:
        self._connection.begin()

    def commit(self) -> None:
        self._check_open()
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()

    def _carry_out_inside(self, operation: Operation[T]) -> T:
        self._check_open()
        return drive(operation, lambda step: self._connection.run(*step))

    def _carry_out_alone(self, operation: Operation[T]) -> T:
        return drive(operation, lambda step: self._connection.run_alone(*step))


class AsyncSqlSession(SessionMethods):
    """`SqlSession` for an event loop."""

    _connection: AsyncConnection

    def __init__(self, connection: AsyncConnection, dialect: Dialect, clock: Clock) -> None:
        super().__init__(dialect, clock)
        self._connection = connection

    async def begin(self) -> None:
        await self._connection.begin()

    async def commit(self) -> None:
        self._check_open()
        await self._connection.commit()

    async def close(self) -> None:
        await self._connection.close()

    async def _carry_out_inside(self, operation: Operation[T]) -> T:
        self._check_open()
        return await drive_async(operation, lambda step: self._connection.run(*step))

    async def _carry_out_alone(self, operation: Operation[T]) -> T:
        return await drive_async(operation, lambda step: self._connection.run_alone(*step))
