"""Sessions of SQL stores: the statements of each operation, written once for threads and event loops.

An operation is a generator: it yields statements with their parameters and is given the rows of each. `SqlSession`
carries it out with a `DatabaseConnection`, `AsyncSqlSession` with its asynchronous twin. An adapter of a driver is
these few methods.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from ottla.clock import Clock
from ottla.errors import LifecycleError
from ottla.records import TopicPartition
from ottla.stepping import Procedure, drive, drive_async
from ottla.stores.protocols import Start
from ottla.stores.sql_text import Dialect, Statement

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


class Operations:
    """The statements of each operation. Pure but for the clock."""

    def __init__(self, dialect: Dialect, clock: Clock) -> None:
        self.dialect = dialect
        self._clock = clock

    def _ids(self, consumer: str, ids: Sequence[str], **more: Any) -> Parameters:
        return {"consumer": consumer, "ids": self.dialect.as_list(list(ids)), **self._now(), **more}

    def _now(self) -> Parameters:
        return {"now_ms": self._clock.now_ms()}

    def mark(self, consumer: str, ids: Sequence[str]) -> Operation[Collection[str]]:
        rows = yield self.dialect.mark, self._ids(consumer, ids)
        return {row[0] for row in rows}

    def unmark(self, consumer: str, ids: Sequence[str]) -> Operation[None]:
        yield self.dialect.unmark, self._ids(consumer, ids)

    def claim(self, consumer: str, ids: Sequence[str], owner: str, lease_ms: int) -> Operation[Collection[str]]:
        rows = yield self.dialect.claim, self._ids(consumer, ids, owner=owner, lease_ms=lease_ms)
        return {row[0] for row in rows}

    def look(self, consumer: str, ids: Sequence[str]) -> Operation[Mapping[str, int | None]]:
        rows = yield self.dialect.look, self._ids(consumer, ids)
        return {row[0]: row[1] for row in rows}

    def renew(self, consumer: str, ids: Sequence[str], owner: str, lease_ms: int) -> Operation[int]:
        rows = yield self.dialect.renew, self._ids(consumer, ids, owner=owner, lease_ms=lease_ms)
        return len(rows)

    def finish(self, consumer: str, ids: Sequence[str]) -> Operation[None]:
        yield self.dialect.finish, self._ids(consumer, ids)

    def release(self, consumer: str, ids: Sequence[str], owner: str) -> Operation[None]:
        yield self.dialect.release, self._ids(consumer, ids, owner=owner)

    def clean(self, consumer: str, window_ms: int) -> Operation[int]:
        rows = yield self.dialect.clean, {"consumer": consumer, "window_ms": window_ms, **self._now()}
        return len(rows)

    def claim_offsets(
        self, consumer: str, member: str, partitions: Sequence[TopicPartition]
    ) -> Operation[Mapping[TopicPartition, Start]]:
        as_list = self.dialect.as_list
        rows = yield (
            self.dialect.claim_offsets,
            {
                "consumer": consumer,
                "member": member,
                "topics": as_list([name.topic for name in partitions]),
                "partitions": as_list([name.partition for name in partitions]),
            },
        )
        return {TopicPartition(topic, part): Start(offset, epoch) for topic, part, offset, epoch in rows}

    def save_offset(self, consumer: str, name: TopicPartition, next_offset: int, epoch: int) -> Operation[bool]:
        rows = yield self.dialect.save_offset, _position(consumer, name, next_offset, epoch)
        return bool(rows) and rows[0][0] == 1

    def pass_offset(self, consumer: str, name: TopicPartition, next_offset: int, epoch: int) -> Operation[None]:
        yield self.dialect.pass_offset, _position(consumer, name, next_offset, epoch)

    def list_offsets(self, consumer: str) -> Operation[Rows]:
        return (yield self.dialect.list_offsets, {"consumer": consumer})

    def reset_offset(self, consumer: str, name: TopicPartition, next_offset: int) -> Operation[None]:
        yield self.dialect.reset_offset, _position(consumer, name, next_offset, 0)

    def read_offset(self, consumer: str, name: TopicPartition) -> Operation[Start | None]:
        rows = yield (
            self.dialect.read_offset,
            {"consumer": consumer, "topic": name.topic, "partition": name.partition},
        )
        return Start(rows[0][0], rows[0][1]) if rows else None


def _position(consumer: str, name: TopicPartition, next_offset: int, epoch: int) -> Parameters:
    return {
        "consumer": consumer,
        "topic": name.topic,
        "partition": name.partition,
        "next_offset": next_offset,
        "epoch": epoch,
    }


class _SessionMethods:
    """Methods of both kinds of session: a shell carries out operations at once, or returns what is to be awaited."""

    _connection: Any
    _operations: Operations

    @property
    def transaction(self) -> Any:
        return self._connection.transaction

    def rollback(self) -> Any:
        return self._connection.rollback()

    def mark(self, consumer: str, ids: Sequence[str]) -> Any:
        return self._inside(self._operations.mark(consumer, ids))

    def unmark(self, consumer: str, ids: Sequence[str]) -> Any:
        return self._inside(self._operations.unmark(consumer, ids))

    def claim_offsets(self, consumer: str, member: str, partitions: Sequence[TopicPartition]) -> Any:
        return self._alone(self._operations.claim_offsets(consumer, member, partitions))

    def save_offset(self, consumer: str, partition: TopicPartition, next_offset: int, epoch: int) -> Any:
        return self._inside(self._operations.save_offset(consumer, partition, next_offset, epoch))

    def pass_offset(self, consumer: str, partition: TopicPartition, next_offset: int, epoch: int) -> Any:
        return self._alone(self._operations.pass_offset(consumer, partition, next_offset, epoch))

    def read_offset(self, consumer: str, partition: TopicPartition) -> Any:
        return self._alone(self._operations.read_offset(consumer, partition))

    def list_offsets(self, consumer: str) -> Any:
        """Return (topic, partition, next offset, epoch, member, time of the last change) of each partition."""
        return self._alone(self._operations.list_offsets(consumer))

    def reset_offset(self, consumer: str, partition: TopicPartition, next_offset: int) -> Any:
        """Set where a partition continues, and fence its owner."""
        return self._alone(self._operations.reset_offset(consumer, partition, next_offset))

    def claim(self, consumer: str, ids: Sequence[str], *, owner: str, lease_ms: int) -> Any:
        return self._alone(self._operations.claim(consumer, ids, owner, lease_ms))

    def look(self, consumer: str, ids: Sequence[str]) -> Any:
        return self._alone(self._operations.look(consumer, ids))

    def renew(self, consumer: str, ids: Sequence[str], *, owner: str, lease_ms: int) -> Any:
        return self._alone(self._operations.renew(consumer, ids, owner, lease_ms))

    def finish(self, consumer: str, ids: Sequence[str], *, window_ms: int) -> Any:
        return self._alone(self._operations.finish(consumer, ids))

    def release(self, consumer: str, ids: Sequence[str], *, owner: str) -> Any:
        return self._alone(self._operations.release(consumer, ids, owner))

    def clean(self, consumer: str, *, window_ms: int) -> Any:
        return self._alone(self._operations.clean(consumer, window_ms))

    def _inside(self, operation: Operation[Any]) -> Any:
        raise NotImplementedError

    def _alone(self, operation: Operation[Any]) -> Any:
        raise NotImplementedError

    def _check_open(self) -> None:
        if not self._connection.is_in_transaction:
            raise LifecycleError(
                "the handler ended the run's transaction: it called commit() or rollback(), or used the connection as "
                "a context manager. Ottla commits it with the offset; for a part that may fail, use a savepoint"
            )


class SqlSession(_SessionMethods):
    """A session for threads: `TransactionSession` and `ClaimSession` in one."""

    def __init__(self, connection: DatabaseConnection, operations: Operations) -> None:
        self._connection = connection
        self._operations = operations

    def begin(self) -> None:
        self._connection.begin()

    def commit(self) -> None:
        self._check_open()
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()

    def _inside(self, operation: Operation[T]) -> T:
        self._check_open()
        return drive(operation, lambda step: self._connection.run(*step))

    def _alone(self, operation: Operation[T]) -> T:
        return drive(operation, lambda step: self._connection.run_alone(*step))


class AsyncSqlSession(_SessionMethods):
    """`SqlSession` for an event loop."""

    def __init__(self, connection: AsyncConnection, operations: Operations) -> None:
        self._connection = connection
        self._operations = operations

    async def begin(self) -> None:
        await self._connection.begin()

    async def commit(self) -> None:
        self._check_open()
        await self._connection.commit()

    async def close(self) -> None:
        await self._connection.close()

    async def _inside(self, operation: Operation[T]) -> T:
        self._check_open()
        return await drive_async(operation, lambda step: self._connection.run(*step))

    async def _alone(self, operation: Operation[T]) -> T:
        return await drive_async(operation, lambda step: self._connection.run_alone(*step))


class SqlStore:
    """A database that is a `TransactionStore` and a `ClaimStore`: both kinds of session are one."""

    def session(self) -> SqlSession:
        """Return a session for a thread, with marks in the handler's transaction. Raises `ConfigError` if a table is
        missing.
        """
        raise NotImplementedError

    async def async_session(self) -> AsyncSqlSession:
        """Return a session for an event loop, as `session`."""
        raise NotImplementedError

    def claims(self) -> SqlSession:
        """Return a session for a thread, with claims beside the handler's work. Raises `ConfigError` if a table is
        missing.
        """
        return self.session()

    async def async_claims(self) -> AsyncSqlSession:
        """Return a session for an event loop, as `claims`."""
        return await self.async_session()
