"""Carries out over Kafka what the state of a partition requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, Protocol

from ottla.records import TopicPartition
from ottla.schedule.headers import RecordToWrite
from ottla.schedule.owner_transactions import OWN, OwnerTransactions
from ottla.schedule.slot import FindLogEnd, ReadRecords, RecordsRead
from ottla.stepping import Procedure, drive
from ottla.wire_client.cluster.cluster_client import EARLIEST, LATEST, Cluster
from ottla.wire_client.fetching.record_chunks import read_chunk

MOST_PLAIN_BYTES: Final = 1_000_000
"""Most uncompressed bytes of one chunk: a fetch of small compressed messages may hold a hundred thousand records."""


class Owned(Protocol):
    """The state machine of one partition (`OwnedSlot`, `OwnedTasks`)."""

    is_behind: bool
    """The last tick left something to do: the next one is to follow at once."""
    delivered: int
    """How many messages or runs were delivered."""
    unreadable: int
    """How many records no scheduler can act on."""

    @property
    def is_open(self) -> bool:
        """Return whether it is claimed, and read at each tick."""

    @property
    def next_due_ms(self) -> int | None:
        """Return when the next message or run is due; None without one."""

    def tick(self, now_ms: int) -> Procedure[Any, Any, None]:
        """Do what is due."""


class PartitionOwner(ABC):
    """The I/O of one partition. Not thread-safe: its scheduler's thread has it."""

    def __init__(
        self,
        place: TopicPartition,
        owned: Owned,
        *,
        cluster: Cluster,
        appended: Callable[[int], None],
        dispatched: Callable[[int, int], None],
    ) -> None:
        """`appended` is called with the brokers' time, `dispatched` with how many messages or runs were delivered and
        when the first of them was due."""
        self._place = place
        self.owned = owned
        self._cluster = cluster
        self._dispatched = dispatched
        self._transactions = OwnerTransactions(place, cluster=cluster, appended=appended)
        self._tick_ms = 0

    def tick(self, now_ms: int) -> None:
        """Do what is due. Raises the errors after which this owner, or the next one, has to read it again."""
        self._tick_ms = now_ms
        drive(self.owned.tick(now_ms), self._answer)

    def claim(self) -> None:
        """Become the only writer of the partition, and learn the brokers' time."""
        if self._transactions.claim():
            self.read_broker_time()

    def read_broker_time(self) -> None:
        """Write a record without a meaning: its append time is the brokers' time."""
        batches = self._transactions.begin(self._tick_ms)
        batches.add(self._idle_record(), OWN)
        self._transactions.commit(batches)

    def close(self) -> None:
        """Release the partition; its next owner aborts open transactions."""
        self._transactions.close()

    @abstractmethod
    def _idle_record(self) -> RecordToWrite:
        """Return a record of the partition that changes nothing."""

    def _answer(self, asked: Any) -> Any:
        match asked:
            case FindLogEnd():
                return self._offset(LATEST)
            case ReadRecords(offset):
                chunk = read_chunk(self._cluster, self._place, offset, most_plain_bytes=MOST_PLAIN_BYTES)
                return RecordsRead(chunk.records, chunk.next_offset)
            case _:
                raise AssertionError(f"no code for {asked!r}")

    def _log_start(self) -> int:
        return self._offset(EARLIEST)

    def _offset(self, at: int) -> int:
        return self._cluster.list_offsets({self._place: at})[self._place][0]
