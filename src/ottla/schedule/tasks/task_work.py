"""The recurring tasks of a schedule in the hands of their owner: what the tasks ask for, done over Kafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.records import TopicPartition
from ottla.schedule.headers import RecordToWrite
from ottla.schedule.owner_transactions import OWN, OwnerTransactions
from ottla.schedule.slot import FindLogEnd, ReadRecords, RecordsRead, WriteRefused
from ottla.schedule.tasks.owned_tasks import Ask, ClaimTasks, OwnedTasks, TaskWrite, WriteTasks
from ottla.schedule.tasks.task_records import run_record, state_record
from ottla.stepping import drive
from ottla.wire_client.cluster.cluster_client import EARLIEST, LATEST, Cluster
from ottla.wire_client.fetching.record_chunks import read_chunk

_MOST_PLAIN_BYTES: Final = 1_000_000
_CLOCK: Final = b"clock"
"""Key of a record without a meaning, whose append time is the brokers' time."""


class TaskWork:
    """The I/O of a schedule's recurring tasks. Not thread-safe: its scheduler's thread has it."""

    def __init__(
        self,
        place: TopicPartition,
        *,
        cluster: Cluster,
        appended: Callable[[int], None],
        dispatched: Callable[[int, int], None],
    ) -> None:
        """`appended` is called with the brokers' time, `dispatched` with how many runs were dispatched and when the
        first of them was due."""
        self._place = place
        self._cluster = cluster
        self._dispatched = dispatched
        self._transactions = OwnerTransactions(place, cluster=cluster, appended=appended)
        self._now_ms = 0
        self.tasks = OwnedTasks()

    @property
    def is_open(self) -> bool:
        """Return whether it is claimed."""
        return self.tasks.is_claimed

    @property
    def is_behind(self) -> bool:
        """Return whether the next tick is to follow at once."""
        return self.tasks.is_behind

    @property
    def next_due_ms(self) -> int | None:
        """Return when the next run is due; None without one."""
        return self.tasks.next_due_ms

    @property
    def delivered(self) -> int:
        """Return how many runs were dispatched."""
        return self.tasks.dispatched

    @property
    def waiting(self) -> int:
        """Return how many tasks there are."""
        return len(self.tasks.tasks)

    @property
    def unreadable(self) -> int:
        """Return how many records no scheduler can act on."""
        return self.tasks.unreadable

    @property
    def problems(self) -> Mapping[str, str]:
        """Task → why its runs are not dispatched."""
        return self.tasks.problems

    def tick(self, now_ms: int) -> None:
        """Do what is due. Raises the errors after which this owner, or the next one, has to read the tasks again."""
        self._now_ms = now_ms
        drive(self.tasks.tick(now_ms), self._answer)

    def claim(self) -> None:
        """Become the only owner, and learn the brokers' time."""
        if self._transactions.claim():
            self.read_broker_time()

    def read_broker_time(self) -> None:
        """Write a record without a meaning: its append time is the brokers' time."""
        batches = self._transactions.begin(self._now_ms)
        batches.add(RecordToWrite(self._place.topic, self._place.partition, _CLOCK, None, []), OWN)
        self._transactions.commit(batches)

    def close(self) -> None:
        """Release the tasks; the next owner aborts open transactions."""
        self._transactions.close()

    def _answer(self, asked: Ask) -> Any:
        match asked:
            case ClaimTasks():
                self.claim()
                return self._cluster.list_offsets({self._place: EARLIEST})[self._place][0]
            case FindLogEnd():
                return self._cluster.list_offsets({self._place: LATEST})[self._place][0]
            case ReadRecords(offset):
                chunk = read_chunk(self._cluster, self._place, offset, most_plain_bytes=_MOST_PLAIN_BYTES)
                return RecordsRead(chunk.records, chunk.next_offset)
            case WriteTasks(writes):
                return self._write(writes)

    def _write(self, writes: list[TaskWrite]) -> WriteRefused | None:
        targets = [
            (topic, None, number)
            for number, write in enumerate(writes)
            for topic in {run.definition.topic for run in write.runs}
        ]
        refused = self._transactions.problem(targets)
        if refused is not None:
            return refused
        batches = self._transactions.begin(self._now_ms)
        for number, write in enumerate(writes):
            for run in write.runs:
                batches.add(
                    run_record(
                        run.definition,
                        due_ms=run.due_ms,
                        dispatched_ms=self._now_ms,
                        expires_ms=run.expires_ms,
                        trigger=run.trigger,
                    ),
                    number,
                )
            if write.is_changed:
                batches.add(state_record(self._place.topic, write.id, write.state, read_to=write.read_to), OWN)
            for key in write.triggers:
                batches.add(RecordToWrite(self._place.topic, self._place.partition, key, None, []), OWN)
        refused = self._transactions.commit(batches)
        if refused is None:
            due = [run.due_ms for write in writes for run in write.runs]
            if due:
                self._dispatched(len(due), min(due))
        return refused
