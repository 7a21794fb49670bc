"""Which run a caller who pulls is given next, where topics have priorities: the rule of handlers, over open runs."""

from __future__ import annotations

from ottla.consumer.model.events import RunFinished
from ottla.consumer.model.run import Run, RunResult
from ottla.consumer.partitions.plan import PriorityPlan
from ottla.consumer.scheduling.priorities import PriorityTurns
from ottla.records import TopicPartition


class RunChoice:
    """Runs that wait to be taken, one per partition at the most."""

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
        """A run came. Returns one that it replaces: its partition was revoked in between."""
        before = self._runs.get(run.topic_partition)
        self._runs[run.topic_partition] = run
        self._turns.activate(run.topic_partition)
        return None if before is None else given_back(before)

    def next(self) -> Run | None:
        """The run whose turn it is."""
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
        """Give back all."""
        return [self._take(name) for name in list(self._runs)]

    def _take(self, name: TopicPartition) -> RunFinished:
        self._turns.deactivate(name)
        return given_back(self._runs.pop(name))


def given_back(run: Run) -> RunFinished:
    """The end of a run that nobody has looked at."""
    return RunFinished(run, RunResult(done=(), untouched=run.records))
