"""One slot of a schedule in the hands of its owner: what the slot asks for, done over Kafka.

Each slot has a transactional id of its own. Claiming a slot initializes it: that aborts what an earlier owner left
open, and fences that owner, before the slot is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ottla.errors import UnknownTopic
from ottla.failures.dead_letter import DeadLetterReason, build_dead_letter
from ottla.records import TopicPartition
from ottla.schedule.headers import DEAD_LETTERS_SUFFIX, RecordToWrite, ScheduledMessage, delivered, done_record, rolled
from ottla.schedule.slot import (
    Ask,
    Cause,
    ClaimSlot,
    DeletePrefix,
    FindLogEnd,
    LogStart,
    OwnedSlot,
    ReadLogStart,
    ReadRecords,
    RecordsRead,
    ReleaseSlot,
    WriteBatch,
    WriteRefused,
)
from ottla.schedule.slot_batches import Batches, partition_of
from ottla.schedule.wheel import WHEEL
from ottla.stepping import drive
from ottla.wire_client.cluster.cluster_client import EARLIEST, LATEST, Cluster
from ottla.wire_client.fetching.record_chunks import read_chunk
from ottla.wire_client.producing.batch_transactions import BatchesRefused, BatchTransactions

_TRANSACTION_TIMEOUT_MS: Final = 60_000
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
        self._appended = appended
        self._dispatched = dispatched
        self._tick_ms = 0
        self._writer: BatchTransactions | None = None
        self._turn = 0
        """Messages without a key go to the target's partitions in turns, one for each transaction."""
        self._keyless: dict[str, int] = {}
        """Topic → the partition of this transaction's messages without a key."""
        self._counts: dict[str, int] = {}
        """Topic → how many partitions it has, for this transaction."""
        self.slot = OwnedSlot(WHEEL, place.partition)

    def tick(self, now_ms: int) -> None:
        """Do what is due. Raises the errors after which this owner, or the next one, has to reset the slot."""
        self._tick_ms = now_ms
        drive(self.slot.tick(now_ms), self._answer)

    def claim(self) -> None:
        """Become the only writer of this slot, and learn the brokers' time."""
        if self._writer is None:
            transactional_id = f"{self._place.topic}.{self._place.partition}"
            self._writer = BatchTransactions(self._cluster, transactional_id, timeout_ms=_TRANSACTION_TIMEOUT_MS)
            self.read_broker_time()

    def read_broker_time(self) -> None:
        """Write a record that says that nothing is done: its append time is the brokers' time."""
        batches = self._batches()
        batches.add(done_record(self._place.topic, self._place.partition, []), -1)
        self._commit(batches)

    def close(self) -> None:
        """Release the slot; its next owner aborts open transactions."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

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
        refused = self._problem([*targets, *((letter.topic, None, offset) for letter, offset in letters)])
        if refused is not None:
            return refused
        self._turn += 1
        batches = self._batches()
        batches.deliver(write.deliver)
        for message, slot in write.move:
            batches.add(rolled(message, slot), message.offset)
        for letter, offset in letters:
            batches.add(letter, offset)
        batches.add(done_record(self._place.topic, self._place.partition, write.offsets), -1)
        refused = self._commit(batches)
        if refused is None and write.deliver:
            self._dispatched(len(write.deliver), min(message.due_ms for message in write.deliver))
        return refused

    def _batches(self) -> Batches:
        self._keyless.clear()
        self._counts.clear()
        # The time of the tick is never ahead of the brokers': they refuse records of the future.
        return Batches(now_ms=self._tick_ms or self._now_ms(), place_of=self._partition_of)

    def _commit(self, batches: Batches) -> WriteRefused | None:
        """Write in one transaction. Returns which messages are to blame; raises where the brokers are."""
        assert self._writer is not None
        try:
            appended_ms = self._writer.commit(batches.planned())
        except BatchesRefused as error:
            named = {tag[number] for tag, numbers in error.batches for number in numbers}
            blamed = named or {offset for tag, _ in error.batches for offset in tag}
            cause = (
                Cause.TARGET_UNAVAILABLE
                if error.is_away
                else Cause.CERTAIN
                if named or len(blamed) == 1
                else Cause.SUSPECTED
            )
            if -1 in blamed:
                raise
            return WriteRefused(error.reason, frozenset(blamed), cause)
        if self._place in appended_ms:
            self._appended(appended_ms[self._place])
        return None

    # Where messages go

    def _problem(self, targets: Iterable[tuple[str, int | None, int]]) -> WriteRefused | None:
        """Return why a target cannot be written to, if that is known: a topic that does not exist, or a partition
        without a leader, would hold up the other messages."""
        offsets: dict[tuple[str, int | None], list[int]] = {}
        for topic, partition, offset in targets:
            offsets.setdefault((topic, partition), []).append(offset)
        for (topic, partition), those in offsets.items():
            cause = Cause.CERTAIN
            try:
                leaders = self._cluster.topic(topic).leaders
            except UnknownTopic as error:
                reason = f"UnknownTopic: {error}"
            else:
                if partition is not None and partition not in leaders:
                    reason = f"InputError: {topic} has {len(leaders)} partitions: there is no partition {partition}"
                elif any(leader >= 0 for leader in leaders.values()) if partition is None else leaders[partition] >= 0:
                    continue
                else:
                    self._cluster.forget_leaders(topic)
                    reason, cause = f"PartitionUnavailable: {topic} has no leader", Cause.TARGET_UNAVAILABLE
            return WriteRefused(reason, frozenset(those), cause)
        return None

    def _partition_of(self, topic: str, partition: int | None, key: bytes | None) -> int:
        # Terse: it is called for each message.
        if partition is not None:
            return partition
        if key is not None:
            count = self._counts.get(topic)
            if count is None:
                count = self._counts[topic] = len(self._cluster.topic(topic).leaders)
            return partition_of(key, count)
        place = self._keyless.get(topic)
        if place is None:
            leaders = self._cluster.topic(topic).leaders
            able = [number for number, leader in leaders.items() if leader >= 0] or list(leaders)
            place = self._keyless[topic] = able[self._turn % len(able)]
        return place

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
