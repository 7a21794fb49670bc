"""Retry topics against a model: records fail and succeed, writes fail, time passes, the service dies and comes back.

The model is a log per topic and what the coordinator stored. One partition with two retry topics, handled by key or by
partition. What must hold:

- a record is never handled in a retry topic before it is due;
- per key, records are settled for the first time in the order they were produced, across crashes (what was handled and
  not committed may come again: it was settled before, and does not count);
- nothing is committed that is neither settled nor acknowledged in the next topic;
- when everything works again, every record is settled, and every topic is committed to its end.

Hypothesis looks for short failing runs; a plain search with seeds makes thousands of long ones in the same time. It is
what found that an earlier way to write several records of a key at once lost some.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from ottla.consumer.commit.commits import CommitPolicy
from ottla.consumer.model import events
from ottla.consumer.model.effects import (
    Commit,
    Dispatch,
    Effect,
    FindRetryPositions,
    PausePartitions,
    ResumePartitions,
    SeekPartition,
)
from ottla.consumer.model.failed_writes import WriteDeadLetter, WriteRetry
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.consumer.partitions.flow import FlowLimits
from ottla.consumer.partitions.lanes import Ordering
from ottla.consumer.partitions.plan import RoutePlan
from ottla.consumer.session import Session
from ottla.failures import NO_RETRY, Dead, Failure, FailurePolicy, Retry, RetryTopics
from ottla.failures.retry_headers import original_of, retry_state_of
from ottla.records import Header, Record, TopicPartition

TOPIC = TopicPartition("orders", 0)
RETRY_TOPICS = RetryTopics(delays_s=(0.1, 0.5))
SHORT_AND_LONG = RetryTopics(delays_s=(0.1, 8.0))  # nothing waits where it is for a record that is in the second
NAMES = RETRY_TOPICS.names("orders", "g")
LINE = [TOPIC, *(TopicPartition(name, 0) for name in NAMES)]
KEYS = [b"a", b"b", b"c", None]
EPOCH_MS = 1_700_000_000_000


class RetryTopicsModel(RuleBasedStateMachine):
    ordering: Ordering

    @initialize(
        keys=st.lists(st.sampled_from(KEYS), min_size=4, max_size=16),
        retry_topics=st.sampled_from([RETRY_TOPICS, SHORT_AND_LONG]),
    )
    def start(self, keys: list[bytes | None], retry_topics: RetryTopics = RETRY_TOPICS) -> None:
        self.retry_topics = retry_topics
        self.now_ms = 1_000
        self.logs: dict[TopicPartition, list[tuple[bytes | None, list[Header]]]] = {name: [] for name in LINE}
        self.origins: dict[TopicPartition, list[int]] = {name: [] for name in LINE}
        self.committed: dict[TopicPartition, tuple[int, str]] = {}
        self.settled: dict[int, None] = {}  # offsets in the topic itself, in the order of their first settling
        self.given_up: set[int] = set()  # a dead letter was decided: what is behind it need not wait for that
        self.produce(keys)
        self.boot()

    def boot(self) -> None:
        self.session = Session(
            [
                RoutePlan(
                    name="handler",
                    topics=frozenset({TOPIC.topic}),
                    ordering=self.ordering,
                    concurrency=3,
                    max_records_per_turn=4,
                    failures=FailurePolicy(retry=NO_RETRY, retry_topics=self.retry_topics, dead_letter_topic="dead"),
                    retry_chains={TOPIC.topic: NAMES},
                )
            ],
            group="g",
            now_ms=self.now_ms,
            random=Random(1),
            flow=FlowLimits(high_records=12, low_records=4, hold_ms=2),
            commits=CommitPolicy(every_records=5, every_s=0.1),
            epoch_offset_ms=EPOCH_MS,
        )
        self.fetched_to: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.runs: list[Run] = []
        self.writes: list[WriteRetry | WriteDeadLetter] = []
        self.commits: list[Commit] = []
        self.lookups: list[FindRetryPositions] = []
        self.assign_all()

    def assign_all(self) -> None:
        for name in LINE:
            self.fetched_to[name] = self.committed.get(name, (0, ""))[0]
        self.step(events.Assigned(LINE, dict(self.committed)))

    # What happens

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=6))
    def produce(self, keys: list[bytes | None]) -> None:
        self.origins[TOPIC] += range(len(self.origins[TOPIC]), len(self.origins[TOPIC]) + len(keys))
        self.logs[TOPIC] += [(key, [("own", b"\xff")]) for key in keys]

    def fetch(self, index: int, most: int) -> None:
        name = LINE[index]
        if name in self.paused or name not in self.fetched_to:
            return
        start = self.fetched_to[name]
        records: list[AnyRecord] = [
            Record(name.topic, 0, start + at, 7, key, b"v", headers, key, b"v")
            for at, (key, headers) in enumerate(self.logs[name][start : start + most])
        ]
        if records:
            self.fetched_to[name] += len(records)
            self.step(events.Fetched(name, records, 10 * len(records)))

    @rule(seed=st.integers(0, 2**16), steps=st.integers(1, 40), failing=st.sampled_from([0.1, 0.3, 0.6]))
    def a_while_of_ordinary_work(self, seed: int, steps: int, failing: float) -> None:
        """Hypothesis chooses among few things; the many small ones of everyday come from a seed."""
        chance = Random(seed)
        for _ in range(steps):
            choice = chance.random()
            if choice < 0.3:
                self.fetch(chance.randrange(3), chance.randrange(1, 8))
            elif choice < 0.55 and self.runs:
                run = self.runs.pop(chance.randrange(len(self.runs)))
                fates = "".join(
                    chance.choice("rrrad") if chance.random() < failing else "s" for _ in range(len(run.records))
                )
                self.finish(run, fates)
            elif choice < 0.75 and self.writes:
                letter = self.writes.pop(chance.randrange(len(self.writes)))
                self.answer(letter, works=chance.random() < 0.85)
            elif choice < 0.8 and self.lookups:
                self.the_positions_are_found(works=chance.random() < 0.8)
            elif choice < 0.85 and self.commits:
                self.a_commit_is_answered()
            elif choice < 0.9:
                self.produce([chance.choice(KEYS) for _ in range(3)])
            else:
                self.time_passes(chance.randrange(1, 300) * (20 if chance.random() < 0.1 else 1))

    def the_positions_are_found(self, works: bool) -> None:
        asked = self.lookups.pop(0).partitions
        positions = {name: (self.committed.get(name, (0, ""))[0], len(self.logs[name])) for name in asked}
        self.step(events.RetryPositionsFound(asked, positions if works else {}))

    def a_commit_is_answered(self) -> None:
        commit = self.commits.pop(0)
        self.store(commit)
        self.step(events.CommitSucceeded({name: offset for name, (offset, _) in commit.offsets.items()}))

    @rule(ms=st.integers(1, 400))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.session.should_hold(self.now_ms)
        self.step(events.Tick())

    @rule()
    def the_process_is_killed(self) -> None:
        for letter in self.writes:  # what was sent may have arrived all the same
            self.append(letter)
        self.boot()

    @rule()
    def the_group_rebalances(self) -> None:
        self.step(events.Revoking(LINE))
        for run in self.runs:
            self.finish(run, "u" * len(run.records))
        self.runs = []
        self.step(events.Revoked(LINE))
        for letter in self.writes:  # too late for the drain: acknowledged when nobody listens any more
            self.append(letter)
        self.writes, self.lookups = [], []
        for _ in self.commits:
            self.step(events.CommitFailed("rebalance in progress", is_fenced=True))
        self.commits = []
        self.paused.clear()
        self.assign_all()

    @rule(index=st.integers(0, 2))
    def one_partition_is_taken_and_given_back(self, index: int) -> None:
        name = LINE[index]
        self.step(events.Lost([name]))
        self.paused.discard(name)
        self.fetched_to[name] = self.committed.get(name, (0, ""))[0]
        known = {name: self.committed[name]} if name in self.committed else None
        self.step(events.Assigned([name], known))

    # Carrying effects out

    def step(self, event: events.Event) -> None:
        for effect in self.session.step(event, self.now_ms):
            self.perform(effect)

    def perform(self, effect: Effect) -> None:
        match effect:
            case Dispatch(run):
                for record in run.records:
                    state = retry_state_of(record.headers)
                    if state is not None:
                        assert state.not_before_ms <= EPOCH_MS + self.now_ms, "handled before it was due"
                self.runs.append(run)
            case Commit(_, is_final):
                if is_final:
                    self.store(effect)
                else:
                    self.commits.append(effect)
            case PausePartitions(partitions):
                assert not self.paused & set(partitions)
                self.paused.update(partitions)
            case ResumePartitions(partitions):
                assert set(partitions) <= self.paused
                self.paused.difference_update(partitions)
            case SeekPartition(name, offset):
                self.fetched_to[name] = offset
            case WriteRetry() | WriteDeadLetter():
                if isinstance(effect, WriteDeadLetter):
                    self.given_up.add(original_of(effect.record).offset)
                self.writes.append(effect)
            case FindRetryPositions():
                self.lookups.append(effect)

    def store(self, commit: Commit) -> None:
        self.committed.update(commit.offsets)
        for name, (offset, _) in commit.offsets.items():
            further_on = set().union(*(self.origins[other] for other in LINE[LINE.index(name) + 1 :]))
            lost = set(self.origins[name][:offset]) - set(self.settled) - further_on
            assert not lost, f"{name} is committed to {offset}: {sorted(lost)} are lost"

    def append(self, letter: WriteRetry | WriteDeadLetter) -> None:
        built = letter.build()
        if isinstance(letter, WriteRetry):
            assert letter.target_partition == 0
            target = TopicPartition(letter.target, 0)
            self.logs[target].append((built.key, list(built.headers)))
            self.origins[target].append(letter.state.offset)
        else:
            self.settle(letter.record)

    def answer(self, letter: WriteRetry | WriteDeadLetter, works: bool) -> None:
        at = letter.topic_partition, letter.epoch, letter.record.offset
        if works:
            self.append(letter)
            self.step(events.WriteAcknowledged(*at))
        else:
            self.step(events.WriteFailed(*at, "not now"))

    def settle(self, record: AnyRecord) -> None:
        origin = original_of(record)
        if origin.offset in self.settled or record.raw_key is None:
            self.settled[origin.offset] = None
            return
        earlier = [at for at in range(origin.offset) if self.logs[TOPIC][at][0] == record.raw_key]
        missing = [at for at in earlier if at not in self.settled and at not in self.given_up]
        assert not missing, f"{origin.offset} is settled before {missing} of its key"
        self.settled[origin.offset] = None

    def finish(self, run: Run, fates: list[str] | str) -> None:
        """s: succeeds, r: fails, a: fails and asks for a delay, d: is dead at once, u: is not delivered."""
        state = self.session._partitions.get(run.topic_partition)
        if state is None or state.epoch != run.epoch:
            self.step(events.RunFinished(run, RunResult(done=(), untouched=run.records)))
            return  # The worker of a lost partition was stopped.
        done: list[AnyRecord] = []
        failures: list[tuple[AnyRecord, Failure]] = []
        untouched: list[AnyRecord] = []
        failed_keys: set[bytes | None] = set()
        for record, fate in zip(run.records, fates, strict=True):
            is_held = (self.ordering is Ordering.PARTITION and failures) or record.raw_key in failed_keys
            if fate == "u" or is_held:
                untouched.append(record)
            elif fate == "s":
                assert original_of(record).headers == [("own", b"\xff")], "its own headers stay byte for byte"
                self.settle(record)
                done.append(record)
            else:
                outcome = {"r": Retry(), "a": Retry(after_s=0.3), "d": Dead("bad")}[fate]
                if fate == "d" or run.topic_partition == LINE[-1]:
                    self.given_up.add(original_of(record).offset)  # its letter may wait for that of one of its key
                failures.append((record, Failure.of_outcome(outcome)))
                if record.raw_key is not None:
                    failed_keys.add(record.raw_key)
        self.step(events.RunFinished(run, RunResult(done=done, failures=failures, untouched=untouched)))

    def teardown(self) -> None:
        """Everything starts to work: nothing may be lost, nothing may hang."""
        if not hasattr(self, "session"):
            return
        for _ in range(3_000):
            self.now_ms += 100
            self.session.should_hold(self.now_ms)
            self.step(events.Tick())
            self.step(events.ResumeRequested())
            while self.lookups:
                self.the_positions_are_found(works=True)
            for index in range(3):
                self.fetch(index, 50)
            while self.runs:
                run = self.runs.pop(0)
                self.finish(run, "s" * len(run.records))
            while self.writes:
                self.answer(self.writes.pop(0), works=True)
            while self.commits:
                self.a_commit_is_answered()
            at_end = all(self.committed.get(name, (0, ""))[0] == len(self.logs[name]) for name in LINE)
            if at_end and len(self.settled) == len(self.logs[TOPIC]):
                return
        raise AssertionError(f"it does not come to rest: {self.committed}, {len(self.settled)} settled")


class ByKey(RetryTopicsModel):
    ordering = Ordering.KEY


class ByPartition(RetryTopicsModel):
    ordering = Ordering.PARTITION


def run_at_random(kind: type[RetryTopicsModel], seed: int) -> None:
    """One long run of the model, all of it chosen by `seed`."""
    chance = Random(seed)
    model = kind()
    keys = [chance.choice(KEYS) for _ in range(chance.randrange(4, 17))]
    model.start(keys, chance.choice([RETRY_TOPICS, SHORT_AND_LONG]))
    for _ in range(chance.randrange(2, 10)):
        choice = chance.random()
        if choice < 0.2:
            model.one_partition_is_taken_and_given_back(chance.randrange(3))
        elif choice < 0.3:
            model.the_group_rebalances()
        elif choice < 0.4:
            model.the_process_is_killed()
        else:
            model.a_while_of_ordinary_work(chance.randrange(2**16), chance.randrange(5, 60), chance.choice([0.1, 0.3]))
    model.teardown()


@pytest.mark.parametrize("kind", [ByKey, ByPartition])
def test_no_record_is_lost_or_overtaken_in_any_of_many_random_runs(kind: type[RetryTopicsModel]) -> None:
    for seed in range(30):
        run_at_random(kind, seed)


@pytest.mark.complete
@pytest.mark.parametrize("hundred", range(20))
@pytest.mark.parametrize("kind", [ByKey, ByPartition])
def test_no_record_is_lost_or_overtaken_in_thousands_of_random_runs(kind: type[RetryTopicsModel], hundred: int) -> None:
    for seed in range(1_000 + 100 * hundred, 1_100 + 100 * hundred):
        run_at_random(kind, seed)


TestRetryTopicsByKey = ByKey.TestCase
TestRetryTopicsByKey.settings = settings(settings.default, stateful_step_count=12)
TestRetryTopicsByPartition = ByPartition.TestCase
TestRetryTopicsByPartition.settings = settings(settings.default, stateful_step_count=12)


def test_a_record_waits_for_the_write_of_one_of_its_key_that_skips_a_retry_topic() -> None:
    model = ByPartition()
    model.start([b"a"] * 4)
    while model.lookups:
        model.the_positions_are_found(works=True)
    model.fetch(0, 4)
    model.finish(model.runs.pop(), "ssas")  # the third asks for a delay that only the second retry topic has
    assert [(write.record.offset, write.target) for write in model.writes] == [(2, NAMES[1])]
    model.answer(model.writes.pop(), works=False)
    model.the_group_rebalances()
    model.teardown()
    assert list(model.settled) == [0, 1, 2, 3]
