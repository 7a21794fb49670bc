"""The two sides of a shard: what the runtime asks of it, and what it may ask of the runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from broker_embedded.metadata.image import ClusterImage
from ottla_wire.named_tuples import NamedTuple
from ottla_wire.protocol import ErrorCode


class CoordinatorRecord(NamedTuple):
    """A record of the internal topic. A value of None is a tombstone: compaction forgets the key."""

    key: bytes
    value: bytes | None


class Timer(Protocol):
    def cancel(self) -> None: ...


class ShardContext(Protocol):
    """What a shard has of the world. Everything runs on the broker's event loop."""

    def now_ms(self) -> int:
        """Wall clock: what records and expiry speak of."""
        ...

    def monotonic_ms(self) -> int:
        """What deadlines speak of."""
        ...

    def metadata(self) -> ClusterImage: ...

    def append(self, records: Sequence[CoordinatorRecord], on_done: Callable[[ErrorCode], None]) -> None:
        """Append as one batch. `on_done` is called once: when the high watermark has passed it, or with the error to
        tell the client. May be called before this returns."""
        ...

    def append_in_transaction(
        self,
        records: Sequence[CoordinatorRecord],
        on_done: Callable[[ErrorCode], None],
        *,
        producer_id: int,
        producer_epoch: int,
    ) -> None:
        """As `append`, as part of a producer's transaction: the records count when its marker says so."""
        ...

    def when_replicated(self, callback: Callable[[], None]) -> None:
        """Call back when the high watermark has passed everything that is in the log now; perhaps at once."""
        ...

    def leader_epoch(self) -> int:
        """The epoch under which this broker leads the partition: it fences what was here before."""
        ...

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Timer:
        """Call back at a monotonic time."""
        ...

    def reload(self, reason: str) -> None:
        """Memory is ahead of the log because an append failed: forget everything and replay."""
        ...


class Shard(Protocol):
    """All state of one partition of an internal topic. Its memory is a function of the records replayed."""

    def replay(self, record: CoordinatorRecord, *, timestamp_ms: int, producer_id: int) -> None:
        """Apply a record of the log. `producer_id` is -1 outside of transactions."""
        ...

    def replay_end_of_transaction(self, producer_id: int, *, committed: bool) -> None: ...

    def on_loaded(self) -> None:
        """Everything is replayed: start the timers and serve."""
        ...

    def unload(self, error: ErrorCode) -> None:
        """This broker no longer owns the partition: answer everybody who waits with `error`, stop the timers."""
        ...
