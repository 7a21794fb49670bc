"""What a store is, for handlers whose work is to count once. A store of your own implements one of these protocols.

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

__all__ = [
    "AsyncClaimSession",
    "AsyncTransactionSession",
    "ClaimSession",
    "ClaimStore",
    "Start",
    "Store",
    "TransactionSession",
    "TransactionStore",
]


@dataclass(frozen=True, slots=True)
class Start:
    """Where a partition goes on. `next_offset` is None if nothing was saved yet. `epoch` is the fencing token: it is
    one higher at each claim, and only its latest holder can save."""

    next_offset: int | None
    epoch: int


class ClaimSession(Protocol):
    """Claims on message ids. `consumer` is who handles; ids of different consumers are different."""

    def claim(self, consumer: str, ids: Sequence[str], *, owner: str, lease_ms: int) -> Collection[str]:
        """Claim what is neither done nor claimed by somebody else, for `lease_ms`. Returns the claimed ids.

        A claim that ran out counts as none. An owner may claim again what it has.
        """
        ...

    def look(self, consumer: str, ids: Sequence[str]) -> Mapping[str, int | None]:
        """The state of ids: None if the message is done, else the milliseconds until its claim runs out.

        Ids that are neither done nor claimed are not in the result.
        """
        ...

    def renew(self, consumer: str, ids: Sequence[str], *, owner: str, lease_ms: int) -> int:
        """Extend the owner's claims. Returns how many of them it still had."""
        ...

    def finish(self, consumer: str, ids: Sequence[str], *, window_ms: int) -> None:
        """These messages are done. They are remembered for `window_ms` at least."""
        ...

    def release(self, consumer: str, ids: Sequence[str], *, owner: str) -> None:
        """Give up the owner's claims: somebody else may handle the messages now."""
        ...

    def clean(self, consumer: str, *, window_ms: int) -> int:
        """Forget some of what is older than the window. Returns how many; 0 when nothing is left to forget."""
        ...

    def close(self) -> None:
        """Give the connection back. The session is not used again."""
        ...


class TransactionSession(Protocol):
    """Marks and offsets in the transaction of the handler's own work."""

    @property
    def transaction(self) -> Any:
        """What the handler gets as `transaction`: a connection, or a session of a mapper."""
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
        """Mark messages as done. Returns the ids that were not marked before. Waits for another transaction that marks
        one of them, until that one ends."""
        ...

    def unmark(self, consumer: str, ids: Sequence[str]) -> None:
        """Take back marks of this transaction."""
        ...

    def claim_offsets(
        self, consumer: str, member: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Start]:
        """Take the partitions over, in a transaction of its own. After this no earlier owner can save."""
        ...

    def save_offset(self, consumer: str, partition: TopicPartition, next_offset: int, epoch: int) -> bool:
        """Save the offset in the open transaction. Returns False if another owner has claimed the partition since."""
        ...

    def pass_offset(self, consumer: str, partition: TopicPartition, next_offset: int, epoch: int) -> None:
        """Move the offset forward, in a transaction of its own, unless it is there already or the owner changed."""
        ...

    def read_offset(self, consumer: str, partition: TopicPartition) -> Start | None:
        """What is committed for the partition, read outside of any transaction."""
        ...

    def clean(self, consumer: str, *, window_ms: int) -> int:
        """Forget some of what is older than the window. Returns how many; 0 when nothing is left to forget."""
        ...

    def close(self) -> None:
        """Give the connection back. The session is not used again."""
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
        """Whether the error says that the store is away or overloaded, so that the same work may succeed later."""
        ...


@runtime_checkable
class ClaimStore(_AnyStore, Protocol):
    """A store beside the handler's work."""

    def claims(self) -> ClaimSession:
        """A new session for a thread. Also checks that the store is fit for use: `ConfigError` if not."""
        ...

    async def async_claims(self) -> AsyncClaimSession:
        """A new session for an event loop, as `claims`."""
        ...


@runtime_checkable
class TransactionStore(_AnyStore, Protocol):
    """A store in which the handler's work and the marks are one transaction."""

    def session(self) -> TransactionSession:
        """A new session for a thread. Also checks that the tables are there: `ConfigError` if not."""
        ...

    async def async_session(self) -> AsyncTransactionSession:
        """A new session for an event loop, as `session`."""
        ...


Store: TypeAlias = ClaimStore | TransactionStore
"""SQL stores are both."""
