"""Chooses the next run of a pulled consumer whose topics have priorities, by the rule for handlers."""

from __future__ import annotations

from ottla.consumer.model.events import RunFinished
from ottla.consumer.model.run import Run, RunResult
from ottla.consumer.partitions.plan import PriorityPlan
from ottla.consumer.scheduling.priorities import PriorityTurns
from ottla.records import TopicPartition


class RunChoice:
    """The runs that wait to be taken, at most one per partition."""

    __slots__ = ("_runs", "_turns")

    def __init__(self, plan: PriorityPlan) -> None:
        priority_of = plan.priority_of
        self._runs: dict[TopicPartition, Run] = {}
        self._turns: PriorityTurns[TopicPartition] = PriorityTurns(
            quantum=1, every=plan.every, priority_of=lambda name: priority_of[name.topic]
        )

    def __len__(self) -> int:
        return len(self._runs)

    def put(self, run: Run) -> RunFinished | None:
        """Add a run. Returns the end of a run that it replaces, whose partition was revoked in between."""
        before = self._runs.get(run.topic_partition)
        self._runs[run.topic_partition] = run
        self._turns.activate(run.topic_partition)
        return None if before is None else given_back(before)

    def next(self) -> Run | None:
        """Remove and return the run whose turn it is; None if there is none."""
        turn = self._turns.next_turn()
        if turn is None:
            return None
        name, allowance = turn
        self._turns.spent(name, allowance=allowance, cost=1)
        return self._runs.pop(name)

    def take_cancelled(self) -> list[RunFinished]:
        """Give back the runs whose partitions are being revoked."""
        return [self._take(name) for name, run in list(self._runs.items()) if run.is_cancelled]

    def take_all(self) -> list[RunFinished]:
        """Give back all runs."""
        return [self._take(name) for name in list(self._runs)]

    def _take(self, name: TopicPartition) -> RunFinished:
        self._turns.deactivate(name)
        return given_back(self._runs.pop(name))


def given_back(run: Run) -> RunFinished:
    """Return the result of a run whose records were not taken."""
    return RunFinished(run, RunResult(done=(), untouched=run.records))
