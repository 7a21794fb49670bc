"""One handler's share of the session: its turns, its runs in flight, and how long its records take."""

from __future__ import annotations

from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.consumer.partitions.lanes import Ordering, record_size
from ottla.consumer.partitions.partition import PartitionState
from ottla.consumer.partitions.plan import RoutePlan
from ottla.consumer.turns.scheduler import DeficitRoundRobin
from ottla.failures.retry_headers import retry_state_of
from ottla.records import TopicPartition

_MOST_RECORDS = 10_000

_UNCONFIRMED_PER_WORKER = 16
"""Runs that may wait for acknowledgements, per worker. Enough for a round trip of several milliseconds between turns of
half a millisecond; what they hold in memory is bounded by the flow limits as everything is that is not done."""

_PACE_MEMORY = 0.7
"""Weight of the past in the moving average of milliseconds per record."""


class RouteState:
    """The running state of a `RoutePlan`."""

    __slots__ = ("_ms_per_record", "in_flight", "plan", "progressed_ms", "scheduler", "unconfirmed")

    def __init__(self, plan: RoutePlan, now_ms: int = 0) -> None:
        self.plan = plan
        self.progressed_ms = now_ms
        """When the handler was last seen to finish something, of whichever partition."""
        self.scheduler: DeficitRoundRobin[TopicPartition] = DeficitRoundRobin(quantum=plan.quantum)
        self.in_flight = 0
        """Runs that workers have."""
        self.unconfirmed = 0
        """Runs that no worker has any more, and that wait for acknowledgements."""
        self._ms_per_record = 0.0

    def add(self, topic_partition: TopicPartition) -> None:
        """A partition of this handler was assigned."""
        if self.plan.weight_of is not None:
            self.scheduler.set_weight(topic_partition, self.plan.weight_of(topic_partition))

    def take_run(self, state: PartitionState, allowance: int, now_ms: int) -> Run | None:
        """The next records of the partition as a run, at most its allowance; None when all wait for others."""
        lanes = state.lanes
        # Out of a retry topic one by one: each has a number of attempts of its own.
        is_retry = state.stage is not None and state.stage.index > 0 and not self.plan.is_batch
        is_first = not state.attempts and not lanes.has_retries  # of what was stopped the attempts are forgotten
        if self.plan.is_fair_by_bytes:
            # The last record may go beyond the allowance; the partition then owes the rest.
            records = lanes.take(1 if is_retry else self._limit(_MOST_RECORDS, lanes.waiting), allowance)
            cost = sum(map(record_size, records))
        else:
            records = lanes.take(1 if is_retry else self._limit(allowance, lanes.waiting))
            cost = len(records)
        self.scheduler.spent(state.topic_partition, allowance=allowance, cost=cost)
        if not records:
            return None
        attempts = state.attempts.get(records[0].offset) if state.attempts else None
        run = Run(
            topic_partition=state.topic_partition,
            epoch=state.epoch,
            route=self.plan.name,
            records=records,
            attempt=(0 if attempts is None else attempts.failed) + _carried(state, records[0]) + 1,
            started_ms=now_ms,
        )
        run.is_first = is_first
        return run

    @property
    def has_free_worker(self) -> bool:
        """Whether a run may be handed out now."""
        most_unconfirmed = _UNCONFIRMED_PER_WORKER * self.plan.concurrency
        return self.in_flight < self.plan.concurrency and self.unconfirmed < most_unconfirmed

    def handled(self, run: Run, now_ms: int) -> None:
        """The worker let go of a run whose result is not known yet."""
        run.is_handled = True
        self.progressed_ms = now_ms
        self.in_flight -= 1
        self.unconfirmed += 1
        self._learn_pace(run, run.reached, now_ms)

    def finished(self, run: Run, result: RunResult, now_ms: int) -> None:
        """The result of a run is known."""
        self.progressed_ms = now_ms
        if run.is_handled:
            self.unconfirmed -= 1
        else:
            self.in_flight -= 1
            self._learn_pace(run, len(run.records) - len(result.untouched), now_ms)

    def _learn_pace(self, run: Run, handled: int, now_ms: int) -> None:
        """Remember how long records take, so that the turns of a slow handler get shorter."""
        if handled and not self.plan.is_batch:
            sample = (now_ms - run.started_ms) / handled
            self._ms_per_record = _PACE_MEMORY * self._ms_per_record + (1 - _PACE_MEMORY) * sample

    def _limit(self, allowance: int, waiting: int) -> int:
        plan = self.plan
        limit = allowance
        if self._ms_per_record * limit > plan.turn_ms:
            limit = max(1, int(plan.turn_ms / self._ms_per_record))
        if plan.concurrency > 1 and plan.ordering is not Ordering.PARTITION and not plan.linger_ms:
            # Spread what is there over the free workers instead of giving all of it to the first.
            free = plan.concurrency - self.in_flight
            limit = min(limit, max(1, -(-waiting // free)))
        return limit


def _carried(state: PartitionState, record: AnyRecord) -> int:
    """Failed deliveries of the record before it came into its retry topic."""
    if state.stage is None or state.stage.index == 0:
        return 0
    before = retry_state_of(record.headers)
    return 0 if before is None else before.attempts
