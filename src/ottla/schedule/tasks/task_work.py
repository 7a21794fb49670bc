"""The recurring tasks of a schedule in the hands of their owner: what the tasks ask for, done over Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ottla.records import TopicPartition
from ottla.schedule.headers import RecordToWrite
from ottla.schedule.owner_transactions import OWN
from ottla.schedule.partition_owner import PartitionOwner
from ottla.schedule.slot import WriteRefused
from ottla.schedule.tasks.owned_tasks import Ask, ClaimTasks, OwnedTasks, TaskWrite, WriteTasks
from ottla.schedule.tasks.task_records import run_record, state_record
from ottla.wire_client.cluster.cluster_client import Cluster

_CLOCK: Final = b"clock"
"""Key of a record without a meaning, whose append time is the brokers' time."""


class TaskWork(PartitionOwner):
    """The I/O of a schedule's recurring tasks."""

    def __init__(
        self,
        place: TopicPartition,
        *,
        cluster: Cluster,
        appended: Callable[[int], None],
        dispatched: Callable[[int, int], None],
    ) -> None:
        self.tasks = OwnedTasks()
        super().__init__(place, self.tasks, cluster=cluster, appended=appended, dispatched=dispatched)

    def _idle_record(self) -> RecordToWrite:
        return RecordToWrite(self._place.topic, self._place.partition, _CLOCK, None, [])

    def _answer(self, asked: Ask) -> Any:
        match asked:
            case ClaimTasks():
                self.claim()
                return self._log_start()
            case WriteTasks(writes):
                return self._write(writes)
            case _:
                return super()._answer(asked)

    def _write(self, writes: list[TaskWrite]) -> WriteRefused | None:
        targets = [
            (topic, None, number)
            for number, write in enumerate(writes)
            for topic in {run.definition.topic for run in write.runs}
        ]
        refused = self._transactions.problem(targets)
        if refused is not None:
            return refused
        batches = self._transactions.begin(self._tick_ms)
        for number, write in enumerate(writes):
            for run in write.runs:
                batches.add(
                    run_record(
                        run.definition,
                        due_ms=run.due_ms,
                        dispatched_ms=self._tick_ms,
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
