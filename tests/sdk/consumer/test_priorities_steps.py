"""Priorities in the session: whose run goes out next, which workers are kept, and what retry topics do."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla import Priorities
from ottla.consumer.model import events
from ottla.consumer.model.effects import Dispatch
from ottla.consumer.model.failed_writes import WriteRetry
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.consumer.partitions.lanes import Ordering
from ottla.consumer.partitions.plan import PriorityPlan, RoutePlan
from ottla.consumer.pulled.choice import RunChoice
from ottla.consumer.scheduling.route import Reserve
from ottla.consumer.session import Session
from ottla.failures import Failure, FailurePolicy, Retry, RetryPolicy, RetryTopics
from ottla.records import Record, TopicPartition

ORDERS = Priorities("orders", ("urgent", "normal", "bulk"), at_least_every=(1, 4, 20))
URGENT, NORMAL, BULK = (TopicPartition(topic, 0) for topic in ORDERS.topics)


class Member:
    """A session of one handler with priorities, and the runs that its workers have."""

    def __init__(
        self, *, max_records_per_turn: int = 10, retry_topics: RetryTopics | None = None, **options: Any
    ) -> None:
        lines = {} if retry_topics is None else {topic: retry_topics.names(topic, "g") for topic in ORDERS.topics}
        order = {name: number for number, topic in enumerate(ORDERS.topics) for name in (topic, *lines.get(topic, ()))}
        reserve = options.pop("reserve", ())
        plan = RoutePlan(
            name="handler",
            topics=frozenset(ORDERS.topics),
            max_records_per_turn=max_records_per_turn,
            failures=FailurePolicy(
                retry=RetryPolicy(max_attempts=1), retry_topics=retry_topics, dead_letter_topic="dead"
            ),
            retry_chains=lines,
            priorities=PriorityPlan(priority_of=order, every=ORDERS.at_least_every, reserve=reserve),
            **options,
        )
        self.now_ms = 0
        self.session = Session([plan], group="g", now_ms=0, random=Random(1))
        self.runs: list[Run] = []
        self.retries: list[WriteRetry] = []
        self.next: Counter[TopicPartition] = Counter()
        names = [TopicPartition(topic, 0) for topic in plan.subscribed]
        self.step(events.Assigned(names))
        self.step(events.RetryPositionsFound(names, dict.fromkeys(names, (0, 0))))

    def step(self, event: events.Event) -> None:
        effects = self.session.step(event, self.now_ms)
        self.runs += [effect.run for effect in effects if isinstance(effect, Dispatch)]
        self.retries += [effect for effect in effects if isinstance(effect, WriteRetry)]

    def fetch(self, name: TopicPartition, count: int, key: bytes | None = None) -> None:
        start = self.next[name]
        self.next[name] += count
        records: list[AnyRecord] = [Record(*name, start + n, 0, key, b"v", [], key, b"v") for n in range(count)]
        self.step(events.Fetched(name, records, count))

    def finish(self) -> TopicPartition:
        run = self.runs.pop(0)
        self.step(events.RunFinished(run, RunResult()))
        return run.topic_partition


def test_what_is_urgent_goes_next_and_the_others_have_their_share() -> None:
    member = Member()
    for name in (BULK, NORMAL, URGENT):
        member.fetch(name, 2_000)
    served = Counter(member.finish() for _ in range(200))
    assert served[BULK] in (9, 10, 11)
    assert 48 <= served[NORMAL] <= 52
    assert served.total() == 200


def test_an_urgent_record_waits_for_the_run_in_hand_only() -> None:
    member = Member()
    member.fetch(BULK, 1_000)
    member.finish()
    member.fetch(URGENT, 1)
    assert [member.finish(), member.finish()] == [BULK, URGENT]


def test_reserved_workers_are_never_taken_by_lower_priorities() -> None:
    member = Member(concurrency=4, ordering=Ordering.UNORDERED, reserve=(1, 1, 0))
    member.fetch(BULK, 1_000)
    assert [run.topic_partition for run in member.runs] == [BULK] * 2
    member.fetch(NORMAL, 1_000)
    assert [run.topic_partition for run in member.runs] == [BULK, BULK, NORMAL]
    member.fetch(URGENT, 1)
    assert [run.topic_partition for run in member.runs] == [BULK, BULK, NORMAL, URGENT]


@given(
    reserve=st.tuples(st.integers(0, 3), st.integers(0, 3), st.just(0)),
    extra=st.integers(1, 4),
    moves=st.lists(st.integers(0, 5), max_size=80),
)
def test_whatever_runs_the_kept_workers_are_there_for_those_above(
    reserve: tuple[int, int, int], extra: int, moves: list[int]
) -> None:
    concurrency = sum(reserve) + extra
    order = {topic: number for number, topic in enumerate(ORDERS.topics)}
    plan = RoutePlan(
        name="handler",
        topics=frozenset(ORDERS.topics),
        concurrency=concurrency,
        priorities=PriorityPlan(priority_of=order, every=ORDERS.at_least_every, reserve=reserve),
    )
    kept = Reserve(plan)
    busy = [0, 0, 0]
    for move in moves:
        priority = move % 3
        if move < 3:
            if sum(busy) < concurrency and priority < kept.allowed:
                busy[priority] += 1
                kept.count(ORDERS.topics[priority], 1)
        elif busy[priority]:
            busy[priority] -= 1
            kept.count(ORDERS.topics[priority], -1)
        assert busy[1] + busy[2] <= concurrency - reserve[0]
        assert busy[2] <= concurrency - reserve[0] - reserve[1]
        if sum(busy) < concurrency:
            assert kept.allowed >= 1, "the highest may take any worker that is free"


def test_a_retry_topic_has_the_priority_of_its_topic_and_so_have_parked_keys() -> None:
    member = Member(retry_topics=RetryTopics(delays_s=(10,)), ordering=Ordering.KEY, max_records_per_turn=1)
    urgent_retry = TopicPartition("orders.urgent.g.retry.1", 0)
    member.fetch(URGENT, 1, key=b"k")
    run = member.runs.pop()
    member.step(events.RunFinished(run, RunResult(done=(), failures=[(run.records[0], Failure.of_outcome(Retry()))])))
    member.step(events.WriteAcknowledged(URGENT, member.retries[0].epoch, 0))
    member.fetch(URGENT, 1, key=b"k")  # it follows the failed one
    assert member.runs == []
    assert [write.target for write in member.retries] == [urgent_retry.topic] * 2
    member.step(events.WriteAcknowledged(URGENT, member.retries[1].epoch, 1))
    member.fetch(BULK, 100)
    records: list[AnyRecord] = []
    for offset, write in enumerate(member.retries):
        built = write.build()
        records.append(
            Record(*urgent_retry, offset, 0, built.key, built.value, list(built.headers), built.key, built.value)
        )
    member.step(events.Fetched(urgent_retry, records, 2))
    member.now_ms = 10_000
    member.step(events.Tick())
    order = [member.finish() for _ in range(3)]
    assert order == [BULK, urgent_retry, urgent_retry]


def test_a_lower_priority_that_waits_its_turn_is_not_late() -> None:
    member = Member()
    member.fetch(BULK, 100)
    member.fetch(URGENT, 10_000)
    for _ in range(18):
        member.now_ms += 10_000
        member.finish()
    assert member.session.health(member.now_ms).is_ready


def test_a_caller_who_pulls_is_given_runs_by_the_same_rule() -> None:
    order = {topic: number for number, topic in enumerate(ORDERS.topics)}
    choice = RunChoice(PriorityPlan(priority_of=order, every=ORDERS.at_least_every))

    def run_of(name: TopicPartition) -> Run:
        return Run(topic_partition=name, epoch=1, route="consumer", records=[], attempt=1, started_ms=0)

    for name in (BULK, NORMAL, URGENT):
        choice.put(run_of(name))
    taken: Counter[TopicPartition] = Counter()
    for _ in range(200):
        run = choice.next()
        assert run is not None
        taken[run.topic_partition] += 1
        choice.put(run_of(run.topic_partition))
    assert taken[BULK] in (9, 10, 11)
    assert 48 <= taken[NORMAL] <= 52
    run = run_of(BULK)
    replaced = choice.put(run)
    assert replaced is not None
    run.is_cancelled = True
    assert [finished.run for finished in choice.take_cancelled()] == [run]
    assert len(choice.take_all()) == len({URGENT, NORMAL})
    assert choice.next() is None
