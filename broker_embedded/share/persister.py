"""Where the outcome of leases is kept, as share partitions see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from broker_embedded.common.errors import BrokerError
from ottla_wire.protocol import ErrorCode

from .events import UNCHANGED, PersistedState, StateBatch, append_batch


class ShareKey(NamedTuple):
    """A share partition: a group on a topic partition."""

    group_id: str
    topic_id: bytes
    partition: int


OnRead = Callable[[PersistedState | BrokerError], None]
OnWritten = Callable[[ErrorCode], None]


class Persister(Protocol):
    """Reads and writes the states of share partitions. Writes of one share partition stay in order."""

    def read(self, key: ShareKey, leader_epoch: int, on_done: OnRead) -> None:
        """Read a state for a new leader, which fences the one before. Without one the start offset is -1."""
        ...

    def write(
        self,
        key: ShareKey,
        *,
        leader_epoch: int,
        state_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
        complete_count: int,
        on_done: OnWritten,
    ) -> None: ...


def merged(known: PersistedState, start_offset: int, changed: Sequence[StateBatch]) -> PersistedState:
    """Return the state after a write: newer batches replace what they cover, and nothing is kept below the start."""
    start = known.start_offset if start_offset == UNCHANGED else start_offset
    batches = list(known.batches)
    for new in changed:
        kept: list[StateBatch] = []
        for old in batches:
            if old.last < new.first or old.first > new.last:
                kept.append(old)
                continue
            if old.first < new.first:
                kept.append(old._replace(last=new.first - 1))
            if old.last > new.last:
                kept.append(old._replace(first=new.last + 1))
        batches = [*kept, new]
    joined: list[StateBatch] = []
    for each in sorted(batches):
        if each.last < start:
            continue
        append_batch(joined, each._replace(first=max(each.first, start)))
    return PersistedState(known.state_epoch, start, tuple(joined))
