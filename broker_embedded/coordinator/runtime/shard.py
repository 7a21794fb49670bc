"""The interface between a shard and its runtime, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from broker_embedded.metadata.image import ClusterImage
from ottla_wire.protocol import ErrorCode


class CoordinatorRecord(NamedTuple):
    """A record of the internal topic. A value of None is a tombstone: compaction forgets the key."""

    key: bytes
    value: bytes | None


class Timer(Protocol):
    def cancel(self) -> None: ...


class ShardContext(Protocol):
    """A shard's environment. Everything runs on the broker's event loop."""

    def now_ms(self) -> int:
        """Return the wall clock, for records and expiry."""
        ...

    def monotonic_ms(self) -> int:
        """Return the monotonic clock, for deadlines."""
        ...

    def metadata(self) -> ClusterImage: ...

    def append(self, records: Sequence[CoordinatorRecord], on_done: Callable[[ErrorCode], None]) -> None:
        """Append as one batch. `on_done` is called once: when the high watermark has passed it, or with the client's
        error. May be called before this returns.
        """
        ...

    def append_in_transaction(
        self,
        records: Sequence[CoordinatorRecord],
        on_done: Callable[[ErrorCode], None],
        *,
        producer_id: int,
        producer_epoch: int,
    ) -> None:
        """Append as part of a producer's transaction: the records count once its commit marker is written."""
        ...

    def when_replicated(self, callback: Callable[[], None]) -> None:
        """Call back when the high watermark has passed everything that is in the log now; perhaps at once."""
        ...

    def log_range(self) -> tuple[int, int]:
        """Return the log start offset and the log end offset."""
        ...

    def delete_before(self, offset: int) -> None:
        """Move the log start offset forward: what the shard needs is written again behind it."""
        ...

    def leader_epoch(self) -> int:
        """Return the epoch under which this broker leads the partition: it fences earlier leaders."""
        ...

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Timer:
        """Call back at a monotonic time."""
        ...

    def reload(self, reason: str) -> None:
        """Replay the log again: an append failed, so memory is ahead of it."""
        ...


class Shard(Protocol):
    """All state of one partition of an internal topic. Its memory is a function of the records replayed."""

    def replay(self, record: CoordinatorRecord, *, timestamp_ms: int, producer_id: int) -> None:
        """Apply a record of the log. `producer_id` is -1 outside of transactions."""
        ...

    def replay_end_of_transaction(self, producer_id: int, *, committed: bool) -> None: ...

    def on_loaded(self) -> None:
        """Start the timers and serve, now that everything is replayed."""
        ...

    def unload(self, error: ErrorCode) -> None:
        """Unload the shard: all waiting requests get `error`, and timers stop."""
        ...
