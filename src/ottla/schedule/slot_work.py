"""One slot of a schedule in the hands of its owner: what the slot asks for, done over Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ottla.failures.dead_letter import DeadLetterReason, build_dead_letter
from ottla.records import TopicPartition
from ottla.schedule.headers import DEAD_LETTERS_SUFFIX, RecordToWrite, ScheduledMessage, delivered, done_record, rolled
from ottla.schedule.owner_transactions import OWN
from ottla.schedule.partition_owner import PartitionOwner
from ottla.schedule.slot import (
    Ask,
    ClaimSlot,
    DeletePrefix,
    LogStart,
    OwnedSlot,
    ReadLogStart,
    ReleaseSlot,
    WriteBatch,
    WriteRefused,
)
from ottla.schedule.wheel import WHEEL
from ottla.wire_client.cluster.cluster_client import Cluster

_ANY_TIME: Final = 0
"""In ListOffsets: the first record of all, with its timestamp."""


class SlotWork(PartitionOwner):
    """The I/O of one slot."""

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
        self.slot = OwnedSlot(WHEEL, place.partition)
        super().__init__(place, self.slot, cluster=cluster, appended=appended, dispatched=dispatched)
        self._delete = delete
        self._now_ms = now_ms
        self._tick_ms = now_ms()

    def _idle_record(self) -> RecordToWrite:
        return done_record(self._place.topic, self._place.partition, [])

    def _answer(self, asked: Ask) -> Any:
        match asked:
            case ClaimSlot():
                return self.claim()
            case ReadLogStart():
                return self._look()
            case WriteBatch():
                return self._write(asked)
            case DeletePrefix(to):
                return self._delete(self._place, to)
            case ReleaseSlot():
                return self.close()
            case _:
                return super()._answer(asked)

    def _look(self) -> LogStart:
        start = self._log_start()
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
