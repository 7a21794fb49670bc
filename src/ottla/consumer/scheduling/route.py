"""The running state of one handler: its turns, its runs in flight, the duration of its records."""

from __future__ import annotations

from itertools import accumulate
from typing import Final

from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.consumer.partitions.handler_rate import RateMeter
from ottla.consumer.partitions.lanes import Lanes, Ordering, record_size
from ottla.consumer.partitions.partition import PartitionState
from ottla.consumer.partitions.plan import DEFAULT_TURN_RECORDS, RoutePlan
from ottla.consumer.scheduling.priorities import PriorityTurns
from ottla.consumer.scheduling.scheduler import DeficitRoundRobin
from ottla.failures.retry_headers import retry_state_of
from ottla.quantities import count
from ottla.records import TopicPartition

_MOST_RECORDS = 10_000

_MOST_QUANTA = 16
"""The longest turn, in quanta. One of a handler that sends is as long at once: its partition waits for the
acknowledgements, and a turn should take as long as a round trip does, which is several milliseconds with the producer's
linger."""

_SHORT_TURN_MS = 1
"""Turns grow while they take less than this, so that the fixed cost of a turn is spread over more records."""

_UNCONFIRMED_PER_WORKER = 64 * DEFAULT_TURN_RECORDS
"""Records that may wait for acknowledgements, per worker: what is handled in several round trips. What they hold in
memory is bounded by the flow limits as everything is that is not done."""

_MOST_WEIGHT: Final = 1_000_000


class RouteState:
    """The running state of a `RoutePlan`."""

    __slots__ = (
        "_long",
        "_may_grow",
        "_pace",
        "_quanta",
        "_reserve",
        "_sends",
        "_unconfirmed_records",
        "in_flight",
        "limit",
        "plan",
        "progressed_ms",
        "scheduler",
        "unconfirmed",
        "wakes_ms",
    )

    def __init__(self, plan: RoutePlan, now_ms: int = 0) -> None:
        self.plan = plan
        self.progressed_ms = now_ms
        """When the handler last finished a record, of any partition."""
        self.scheduler = turns_of(plan)
        self._reserve = None if plan.priorities is None or not any(plan.priorities.reserve) else Reserve(plan)
        self.limit = None if plan.max_rate is None else RateMeter(plan.max_rate, now_ms)
        """The tokens of `max_rate`; None without one."""
        self.wakes_ms = now_ms
        """When the last timer for tokens fires."""
        self.in_flight = 0
        """Runs that are in workers."""
        self.unconfirmed = 0
        """Runs that are handled and wait for acknowledgements."""
        self._unconfirmed_records = 0
        self._sends = False
        """Whether the last run that ended had to wait for acknowledgements."""
        self._may_grow = plan.has_default_turns
        self._quanta = 1
        """The turn of a handler that sends nothing, in quanta."""
        self._long: set[Run] = set()
        """Runs in workers with more records than `max_records_per_turn`."""
        self._pace = Pace(at_first=plan.at_first)

    def add(self, topic_partition: TopicPartition) -> None:
        """Add an assigned partition. Raises `ConfigError` if `weight_of` returns no valid weight."""
        if self.plan.weight_of is not None:
            weight = self.plan.weight_of(topic_partition)
            name = f"weight_of({topic_partition})"
            self.scheduler.set_weight(topic_partition, count(self.plan.name, name, weight, most=_MOST_WEIGHT))

    def take_run(self, state: PartitionState, allowance: int, now_ms: int) -> Run | None:
        """Return the next records of the partition as a run, at most its allowance; None if all wait for others."""
        lanes = state.lanes
        # Out of a retry topic one by one: each has a number of attempts of its own.
        is_retry = state.level is not None and state.level.index > 0 and not self.plan.is_batch
        is_first = not state.attempts and not lanes.has_retries  # of what was stopped the attempts are forgotten
        if self.plan.is_fair_by_bytes:
            # The last record may go beyond the allowance; the partition then owes the rest.
            records = lanes.take(1 if is_retry else self._limit(_MOST_RECORDS, lanes, now_ms), allowance)
            cost = sum(map(record_size, records))  # an empty one is not free
        else:
            if self._may_grow:
                allowance *= _MOST_QUANTA if self._sends else self._quanta
            records = lanes.take(1 if is_retry else self._limit(allowance, lanes, now_ms))
            cost = len(records)
        self.scheduler.spent(state.topic_partition, allowance=allowance, cost=cost)
        if not cost:
            return None
        first = records[0]
        attempts = state.attempts.get(first.offset) if state.attempts else None
        run = Run(
            topic_partition=state.topic_partition,
            epoch=state.epoch,
            route=self.plan.name,
            records=records,
            attempt=(0 if attempts is None else attempts.failed) + _carried(state, first) + 1,
            started_ms=now_ms,
        )
        run.is_first = is_first
        run.fetched_ms = state.tracker.oldest_unfinished_ms or now_ms
        return run

    @property
    def has_free_worker(self) -> bool:
        """True if a run may be handed out now."""
        workers = self.plan.concurrency
        return self.in_flight < workers and self._unconfirmed_records < _UNCONFIRMED_PER_WORKER * workers

    def is_limited(self, now_ms: int) -> bool:
        """Return whether records wait, or waited a moment ago, for `max_rate`."""
        return self.limit is not None and self.limit.is_limited(now_ms)

    def end_long_turns(self, now_ms: int) -> None:
        """Ask workers to end turns that were made long for a quick handler, which has become slow. Partitions wait."""
        for run in self._long:
            if now_ms - run.started_ms > self.plan.turn_ms:
                run.is_cancelled = True

    def next_turn(self) -> tuple[TopicPartition, int] | None:
        """Return the partition whose turn it is and its allowance; None if there are no records for a free worker."""
        if self._reserve is None:
            return self.scheduler.next_turn()
        assert isinstance(self.scheduler, PriorityTurns)
        return self.scheduler.next_turn(self._reserve.allowed)

    def began(self, run: Run) -> None:
        """Count a run that a worker gets."""
        self.in_flight += 1
        if self.limit is not None:
            self.limit.spend(len(run.records))
        if self._may_grow and len(run.records) > self.plan.max_records_per_turn:
            self._long.add(run)
        if self._reserve is not None:
            self._reserve.count(run.topic_partition.topic, 1)

    def release(self, run: Run) -> None:
        """Count the run's worker as free again."""
        self.in_flight -= 1
        self._long.discard(run)
        if self._reserve is not None:
            self._reserve.count(run.topic_partition.topic, -1)

    def handled(self, run: Run, now_ms: int) -> None:
        """Note that a run was handled, while its result is still pending."""
        run.is_handled = True
        self.progressed_ms = now_ms
        self.release(run)
        self.unconfirmed += 1
        self._unconfirmed_records += len(run.records)
        self._sends = True
        self._learn_pace(run, run.reached, now_ms)

    def finished(self, run: Run, result: RunResult, now_ms: int) -> None:
        """Apply the result of a run."""
        self.progressed_ms = now_ms
        if self.limit is not None and (uncalled := len(result.untouched) + len(result.expired)):
            self.limit.give_back(uncalled, now_ms)
        if run.is_handled:
            self.unconfirmed -= 1
            self._unconfirmed_records -= len(run.records)
        else:
            self._sends = False
            self.release(run)
            self._learn_pace(run, len(run.records) - len(result.untouched), now_ms)

    def _learn_pace(self, run: Run, handled: int, now_ms: int) -> None:
        """Remember how long records take, so that the turns of a slow handler get shorter."""
        if handled and not self.plan.is_batch:
            # Without the commit: a turn that is shorter for a slow one has as long a commit, for fewer records.
            took_ms = now_ms - run.started_ms - round(run.store_s * 1_000)
            self._pace.learn(records=handled, took_ms=max(0, took_ms))
            if took_ms > 2 * _SHORT_TURN_MS:
                self._quanta = max(1, self._quanta // 2)
            elif took_ms < _SHORT_TURN_MS and handled >= self._quanta * self.plan.max_records_per_turn:
                self._quanta = min(2 * self._quanta, _MOST_QUANTA)

    def _limit(self, allowance: int, lanes: Lanes, now_ms: int) -> int:
        plan = self.plan
        limit = self._pace.most(allowance=allowance, turn_ms=plan.turn_ms)
        if plan.concurrency > 1 and plan.ordering is not Ordering.PARTITION and not plan.linger_ms:
            # Spread what is there over the free workers instead of giving all of it to the first.
            free = plan.concurrency - self.in_flight
            limit = min(limit, max(1, -(-lanes.waiting // free)))
        if self.limit is not None and not plan.is_batch:
            limit = min(limit, self.limit.allowed(now_ms))
        return limit


class Reserve:
    """The workers that are reserved for higher priorities."""

    __slots__ = ("_busy", "_concurrency", "_kept", "_priority_of")

    def __init__(self, plan: RoutePlan) -> None:
        assert plan.priorities is not None
        self._priority_of = plan.priorities.priority_of
        self._concurrency = plan.concurrency
        self._kept = tuple(accumulate(plan.priorities.reserve))
        """Workers that the priorities below each one may not take."""
        self._busy = [0] * len(plan.priorities.every)

    def count(self, topic: str, workers: int) -> None:
        """Add to the number of workers with runs of this topic."""
        self._busy[self._priority_of[topic]] += workers

    @property
    def allowed(self) -> int:
        """The number of priorities, from the highest, that may take a worker now."""
        below = sum(self._busy)
        for priority, kept in enumerate(self._kept[:-1]):
            below -= self._busy[priority]
            if below >= self._concurrency - kept:
                return priority + 1
        return len(self._busy)


def turns_of(plan: RoutePlan) -> DeficitRoundRobin[TopicPartition] | PriorityTurns[TopicPartition]:
    """Return the turns of a handler's partitions."""
    if plan.priorities is None:
        return DeficitRoundRobin(quantum=plan.max_records_per_turn)
    priority_of = plan.priorities.priority_of
    return PriorityTurns(
        quantum=plan.max_records_per_turn, every=plan.priorities.every, priority_of=lambda name: priority_of[name.topic]
    )


def _carried(state: PartitionState, record: AnyRecord) -> int:
    """Return the failed deliveries of the record before it came into its retry topic."""
    if state.level is None or state.level.index == 0:
        return 0
    before = retry_state_of(record.headers)
    return 0 if before is None else before.attempts


_MEMORY: Final = 0.7
"""Weight of the past where records get quicker."""


class Pace:
    """How long the records of a handler take, and so how many of them a turn may have.

    The estimate rises at once and falls slowly, so the turn after a slow one is short already: if a turn is a
    transaction in the user's database, it locks that many rows for that long. One slow run among quick ones costs a
    dozen short turns. `at_first`: records of a turn while nothing is known; None: as many as are allowed.
    """

    __slots__ = ("_at_first", "_ms_per_record")

    def __init__(self, *, at_first: int | None = None) -> None:
        self._at_first = at_first
        self._ms_per_record: float | None = None

    def learn(self, *, records: int, took_ms: int) -> None:
        """Learn from the duration of a run."""
        sample = took_ms / records
        known = self._ms_per_record
        if known is None or sample > known:
            self._ms_per_record = sample
        else:
            self._ms_per_record = _MEMORY * known + (1 - _MEMORY) * sample

    def most(self, *, allowance: int, turn_ms: int) -> int:
        """Return how many of the allowed records should take at most `turn_ms`; at least one."""
        known = self._ms_per_record
        if known is None:
            return allowance if self._at_first is None else min(allowance, self._at_first)
        return allowance if known * allowance <= turn_ms else max(1, int(turn_ms / known))
