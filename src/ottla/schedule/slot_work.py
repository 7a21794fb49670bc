"""One slot of a schedule in the hands of its owner: what the slot asks for, done over Kafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.failures.dead_letter import DeadLetterReason, build_dead_letter
from ottla.records import TopicPartition
from ottla.schedule.headers import DEAD_LETTERS_SUFFIX, RecordToWrite, ScheduledMessage, delivered, done_record, rolled
from ottla.schedule.owner_transactions import OWN, OwnerTransactions
from ottla.schedule.slot import (
    Ask,
    ClaimSlot,
    DeletePrefix,
    FindLogEnd,
    LogStart,
    OwnedSlot,
    ReadLogStart,
    ReadRecords,
    RecordsRead,
    ReleaseSlot,
    SlotState,
    WriteBatch,
    WriteRefused,
)
from ottla.schedule.wheel import WHEEL
from ottla.stepping import drive
from ottla.wire_client.cluster.cluster_client import EARLIEST, LATEST, Cluster
from ottla.wire_client.fetching.record_chunks import read_chunk

_MOST_PLAIN_BYTES: Final = 1_000_000
"""Maximum records per tick of a chunk: a fetch of small compressed messages may hold a hundred thousand."""
_ANY_TIME: Final = 0
"""In ListOffsets: the first record of all, with its timestamp."""


class SlotWork:
    """The I/O of one slot. Not thread-safe: its scheduler's thread has it."""

    def __init__(
        self,
        place: TopicPartition,
        *,
        cluster: Cluster,
        delete: Callable[[TopicPartition, int], None],
        now_ms: Callable[[], int],
        appended: Callable[[int], None],
        dispatched: Callable[[int, int], None],
    ) -> None:
        """`appended` is called with the brokers' time, `dispatched` with how many messages were delivered and when the
        first of them was due."""
        self._place = place
        self._cluster = cluster
        self._delete = delete
        self._now_ms = now_ms
        self._dispatched = dispatched
        self._transactions = OwnerTransactions(place, cluster=cluster, appended=appended)
        self._tick_ms = 0
        self.slot = OwnedSlot(WHEEL, place.partition)

    @property
    def is_open(self) -> bool:
        """Return whether it is claimed, and read at each tick."""
        return self.slot.state is SlotState.OPEN

    @property
    def is_behind(self) -> bool:
        """Return whether the next tick is to follow at once."""
        return self.is_open and self.slot.is_behind

    @property
    def next_due_ms(self) -> int | None:
        """Return when the next message is due; None without one."""
        return self.slot.next_due_ms

    @property
    def delivered(self) -> int:
        """Return how many messages were delivered."""
        return self.slot.delivered

    @property
    def waiting(self) -> int:
        """Return how many messages wait, of those that were read."""
        return len(self.slot.waiting)

    @property
    def unreadable(self) -> int:
        """Return how many records no scheduler can act on."""
        return self.slot.unreadable

    @property
    def problems(self) -> Mapping[str, str]:
        """Return none: a message that cannot be delivered becomes a dead letter."""
        return {}

    def tick(self, now_ms: int) -> None:
        """Do what is due. Raises the errors after which this owner, or the next one, has to reset the slot."""
        self._tick_ms = now_ms
        drive(self.slot.tick(now_ms), self._answer)

    def claim(self) -> None:
        """Become the only writer of this slot, and learn the brokers' time."""
        if self._transactions.claim():
            self.read_broker_time()

    def read_broker_time(self) -> None:
        """Write a record that says that nothing is done: its append time is the brokers' time."""
        batches = self._transactions.begin(self._tick_ms or self._now_ms())
        batches.add(done_record(self._place.topic, self._place.partition, []), OWN)
        self._transactions.commit(batches)

    def close(self) -> None:
        """Release the slot; its next owner aborts open transactions."""
        self._transactions.close()

    def _answer(self, asked: Ask) -> Any:
        match asked:
            case ClaimSlot():
                self.claim()
            case ReadLogStart():
                return self._look()
            case FindLogEnd():
                return self._cluster.list_offsets({self._place: LATEST})[self._place][0]
            case ReadRecords(offset):
                chunk = read_chunk(self._cluster, self._place, offset, most_plain_bytes=_MOST_PLAIN_BYTES)
                return RecordsRead(chunk.records, chunk.next_offset)
            case WriteBatch():
                return self._write(asked)
            case DeletePrefix(to):
                self._delete(self._place, to)
            case ReleaseSlot():
                self.close()
        return None

    def _look(self) -> LogStart:
        start = self._cluster.list_offsets({self._place: EARLIEST})[self._place][0]
        first, first_ms = self._cluster.list_offsets({self._place: _ANY_TIME})[self._place]
        return LogStart(start, None if first < 0 else first_ms)

    def _write(self, write: WriteBatch) -> WriteRefused | None:
        letters = [(self._dead_letter(message, error), message.offset) for message, error in write.give_up]
        targets = [(message.topic, message.partition, message.offset) for message in write.deliver]
        refused = self._transactions.problem([*targets, *((letter.topic, None, offset) for letter, offset in letters)])
        if refused is not None:
            return refused
        batches = self._transactions.begin(self._tick_ms)
        batches.deliver(write.deliver)
        for message, slot in write.move:
            batches.add(rolled(message, slot), message.offset)
        for letter, offset in letters:
            batches.add(letter, offset)
        batches.add(done_record(self._place.topic, self._place.partition, write.offsets), OWN)
        refused = self._transactions.commit(batches)
        if refused is None and write.deliver:
            self._dispatched(len(write.deliver), min(message.due_ms for message in write.deliver))
        return refused

    def _dead_letter(self, message: ScheduledMessage, error: str) -> RecordToWrite:
        kind, _, text = error.partition(": ")
        now_ms = self._now_ms()
        target = delivered(message)
        letter = build_dead_letter(
            topic=message.topic,
            partition=-1 if message.partition is None else message.partition,
            offset=message.offset,
            timestamp_ms=message.at_ms,
            key=target.key,
            value=target.value,
            headers=target.headers,
            reason=DeadLetterReason(
                kind="failed",
                error_type=kind,
                message=text,
                attempts=5,
                group=self._place.topic,
                dead_lettered_ms=now_ms,
            ),
        )
        return RecordToWrite(self._place.topic + DEAD_LETTERS_SUFFIX, None, letter.key, letter.value, letter.headers)
