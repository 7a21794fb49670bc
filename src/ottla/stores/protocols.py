"""Protocols of stores. A store of your own implements one of them.

A store makes sessions. A session belongs to one worker at a time, so it needs no lock. The asynchronous twin has the
same methods as `async def`. Every method may raise; `Store.is_outage` says which errors mean that the store is away.

`TransactionSession` marks messages, and keeps offsets, in the transaction in which the handler works.
`ClaimSession` works beside the handler: claim, handle, finish. `ottla.testing.stores` checks both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from ottla.records import TopicPartition


@dataclass(frozen=True, slots=True)
class Start:
    """Where a partition continues. `next_offset` is None if no offset was saved yet. `epoch` is the fencing token: each
    claim increments it, and only its latest holder can save.
    """

    next_offset: int | None
    epoch: int


class ClaimSession(Protocol):
    """Claims on message ids. `consumer` names the handler; ids of different consumers are different."""

    def claim(self, consumer: str, ids: Sequence[str], *, owner: str, lease_ms: int) -> Collection[str]:
        """Claim ids that are neither processed nor claimed by another owner, for `lease_ms`. Returns the claimed ids.

        A claim that ran out counts as none. An owner may claim again what it has.
        """
        ...

    def look(self, consumer: str, ids: Sequence[str]) -> Mapping[str, int | None]:
        """Return the state of ids: None if processed, else the milliseconds until the claim expires.

        Ids that are neither done nor claimed are not in the result.
        """
        ...

    def renew(self, consumer: str, ids: Sequence[str], *, owner: str, lease_ms: int) -> int:
        """Extend the owner's claims. Returns how many of them it still had."""
        ...

    def finish(self, consumer: str, ids: Sequence[str], *, window_ms: int) -> None:
        """Mark messages as processed. They are remembered for at least `window_ms`."""
        ...

    def release(self, consumer: str, ids: Sequence[str], *, owner: str) -> None:
        """Give up the owner's claims, so that another owner may handle the messages now."""
        ...

    def clean(self, consumer: str, *, window_ms: int) -> int:
        """Delete some marks older than the window. Returns how many; 0 when none is left."""
        ...

    def close(self) -> None:
        """Return the connection. The session is not used again."""
        ...


class TransactionSession(Protocol):
    """Marks and offsets in the transaction of the handler's own work."""

    @property
    def transaction(self) -> Any:
        """Return the object that the handler gets as `transaction`: a connection, or a session of a mapper."""
        ...

    def begin(self) -> None:
        """Begin a transaction."""
        ...

    def commit(self) -> None:
        """Commit the open transaction."""
        ...

    def rollback(self) -> None:
        """Roll the open transaction back."""
        ...

    def mark(self, consumer: str, ids: Sequence[str]) -> Collection[str]:
        """Mark messages as processed. Returns the ids that were not marked before. Waits for other transactions that
        mark one of them.
        """
        ...

    def unmark(self, consumer: str, ids: Sequence[str]) -> None:
        """Remove marks of this transaction."""
        ...

    def claim_offsets(
        self, consumer: str, member: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Start]:
        """Take over the partitions, in a transaction of its own. Earlier owners can no longer save."""
        ...

    def save_offset(self, consumer: str, partition: TopicPartition, next_offset: int, epoch: int) -> bool:
        """Save the offset in the open transaction. Returns False if another owner has claimed the partition since."""
        ...

    def pass_offset(self, consumer: str, partition: TopicPartition, next_offset: int, epoch: int) -> None:
        """Advance the offset in a transaction of its own, unless it is there already or the owner changed."""
        ...

    def read_offset(self, consumer: str, partition: TopicPartition) -> Start | None:
        """Read the committed offset of the partition, outside of any transaction."""
        ...

    def clean(self, consumer: str, *, window_ms: int) -> int:
        """Delete some marks older than the window. Returns how many; 0 when none is left."""
        ...

    def close(self) -> None:
        """Return the connection. The session is not used again."""
        ...


class AsyncClaimSession(Protocol):
    """`ClaimSession` for an event loop."""

    async def claim(self, consumer: str, ids: Sequence[str], *, owner: str, lease_ms: int) -> Collection[str]: ...

    async def look(self, consumer: str, ids: Sequence[str]) -> Mapping[str, int | None]: ...

    async def renew(self, consumer: str, ids: Sequence[str], *, owner: str, lease_ms: int) -> int: ...

    async def finish(self, consumer: str, ids: Sequence[str], *, window_ms: int) -> None: ...

    async def release(self, consumer: str, ids: Sequence[str], *, owner: str) -> None: ...

    async def clean(self, consumer: str, *, window_ms: int) -> int: ...

    async def close(self) -> None: ...


class AsyncTransactionSession(Protocol):
    """`TransactionSession` for an event loop."""

    @property
    def transaction(self) -> Any: ...

    async def begin(self) -> None: ...

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...

    async def mark(self, consumer: str, ids: Sequence[str]) -> Collection[str]: ...

    async def unmark(self, consumer: str, ids: Sequence[str]) -> None: ...

    async def claim_offsets(
        self, consumer: str, member: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Start]: ...

    async def save_offset(self, consumer: str, partition: TopicPartition, next_offset: int, epoch: int) -> bool: ...

    async def pass_offset(self, consumer: str, partition: TopicPartition, next_offset: int, epoch: int) -> None: ...

    async def read_offset(self, consumer: str, partition: TopicPartition) -> Start | None: ...

    async def clean(self, consumer: str, *, window_ms: int) -> int: ...

    async def close(self) -> None: ...


class _AnyStore(Protocol):
    def is_outage(self, error: BaseException) -> bool:
        """Return whether the store is unavailable or overloaded, so that the same work may succeed later."""
        ...


@runtime_checkable
class ClaimStore(_AnyStore, Protocol):
    """A store beside the handler's work."""

    def claims(self) -> ClaimSession:
        """Return a session for a thread. Raises `ConfigError` if the store is not fit for use."""
        ...

    async def async_claims(self) -> AsyncClaimSession:
        """Return a session for an event loop, as `claims`."""
        ...


@runtime_checkable
class TransactionStore(_AnyStore, Protocol):
    """A store with the handler's work and the marks in one transaction."""

    def session(self) -> TransactionSession:
        """Return a session for a thread. Raises `ConfigError` if tables are missing."""
        ...

    async def async_session(self) -> AsyncTransactionSession:
        """Return a session for an event loop, as `session`."""
        ...


Store: TypeAlias = ClaimStore | TransactionStore
"""SQL stores are both."""
