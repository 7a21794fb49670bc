"""The whole session against a model: members come and go, handlers fail, commits fail, dead letters fail.

The model is a log, a set of settled offsets per partition, and what the coordinator stored. After every event:

- nothing is committed beyond a record that is not settled (at least once);
- nothing is committed for a partition that was lost, or dispatched for one that is not owned;
- order per partition or key is kept within an assignment;
- the client is told to pause and resume in turns.

In the end, when everything starts to work, every record is settled and the committed position is the end of the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.consumer.commit.commits import CommitPolicy
from ottla.consumer.commit.offset_metadata import decode_finished
from ottla.consumer.model import events
from ottla.consumer.model.effects import (
    Commit,
    Dispatch,
    Effect,
    Notice,
    PausePartitions,
    ResumePartitions,
)
from ottla.consumer.model.failed_writes import WriteDeadLetter
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.consumer.partitions.flow import FlowLimits
from ottla.consumer.partitions.lanes import Ordering
from ottla.consumer.partitions.plan import RoutePlan
from ottla.consumer.session import Session
from ottla.failures import Dead, Failure, FailurePolicy, Retry, RetryPolicy
from ottla.records import Record, TopicPartition

PARTITIONS = [TopicPartition("orders", number) for number in range(3)]
KEYS = [b"a", b"b", b"c", b"d", None]
CONCURRENCY = 3


class SessionUnderChaos(RuleBasedStateMachine):
    ordering: Ordering
    dead_letter_topic: str | None = "dead"

    @initialize(seed=st.integers(0, 2**16), keys=st.lists(st.sampled_from(KEYS), min_size=6, max_size=20))
    def start(self, seed: int, keys: list[bytes | None]) -> None:
        self.now_ms = 1_000
        self.log: dict[TopicPartition, list[bytes | None]] = {p: [] for p in PARTITIONS}
        self.settled: dict[TopicPartition, set[int]] = {p: set() for p in PARTITIONS}
        self.committed: dict[TopicPartition, tuple[int, str]] = {}
        self.owned: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.runs: list[Run] = []
        self.commits: list[Commit] = []
        self.letters: list[WriteDeadLetter] = []
        self.order: dict[TopicPartition, list[AnyRecord]] = {p: [] for p in PARTITIONS}
        self.session = Session(
            [
                RoutePlan(
                    name="handler",
                    topics=frozenset({"orders"}),
                    ordering=self.ordering,
                    concurrency=CONCURRENCY,
                    max_records_per_turn=8,
                    failures=FailurePolicy(
                        retry=RetryPolicy(max_attempts=3, initial_s=0.01, max_s=0.05),
                        dead_letter_topic=self.dead_letter_topic,
                    ),
                )
            ],
            group="g",
            now_ms=self.now_ms,
            random=Random(seed),
            flow=FlowLimits(high_records=12, low_records=4, hold_ms=2),
            commits=CommitPolicy(every_records=5, every_s=0.1),
        )
        for partition in PARTITIONS:  # most interesting things need records in flight
            self.produce(partition, keys)
            self.assign(partition)
            self.fetch(partition, 5)

    # What happens

    @rule(partition=st.sampled_from(PARTITIONS))
    def assign(self, partition: TopicPartition) -> None:
        if partition in self.owned:
            return
        at, metadata = self.committed.get(partition, (0, ""))
        self.owned[partition] = at
        self.order[partition] = []
        known = {partition: (at, metadata)} if metadata else None
        self.step(events.Assigned([partition], known))

    @rule(partition=st.sampled_from(PARTITIONS), keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=6))
    def produce(self, partition: TopicPartition, keys: list[bytes | None]) -> None:
        self.log[partition] += keys

    @rule(partition=st.sampled_from(PARTITIONS), most=st.integers(1, 10))
    def fetch(self, partition: TopicPartition, most: int, despite_pause: bool = False) -> None:
        if partition not in self.owned or (partition in self.paused and not despite_pause):
            return
        start = self.owned[partition]
        keys = self.log[partition][start : start + most]
        records: list[AnyRecord] = [
            Record("orders", partition.partition, start + index, 0, key, b"v", [], key, b"v")
            for index, key in enumerate(keys)
        ]
        if records:
            self.owned[partition] += len(records)
            self.step(events.Fetched(partition, records, 10 * len(records)))

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def finish_a_run(self, data: st.DataObject) -> None:
        run = self.runs.pop(data.draw(st.integers(0, len(self.runs) - 1)))
        count = len(run.records)
        fates = data.draw(st.lists(st.sampled_from("sssssrdx"), min_size=count, max_size=count))
        acknowledged = list(range(count))
        if count > 1 and data.draw(st.booleans()):
            here = data.draw(st.integers(0, count - 2))
            acknowledged[here], acknowledged[-1] = acknowledged[-1], acknowledged[here]
        self.finish(run, fates, acknowledged)

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def a_worker_makes_progress(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(self.runs))
        if self.ordering is Ordering.PARTITION and run.done < len(run.records) and self.is_current(run):
            self.handled(run.records[run.done])
            run.done += 1

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def a_worker_lets_go(self, data: st.DataObject) -> None:
        """All of the run is handled, and what the handler sent is not acknowledged yet."""
        run = data.draw(st.sampled_from(self.runs))
        if not run.is_handled:
            run.reached = len(run.records)
            self.step(events.RunHandled(run))

    @rule(ms=st.integers(1, 200))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.session.should_hold(self.now_ms)
        self.step(events.Tick())

    @precondition(lambda self: self.commits)
    @rule(works=st.sampled_from([True, True, True, False]))
    def the_coordinator_answers(self, works: bool) -> None:
        commit = self.commits.pop(0)
        if works:
            self.store(commit)
            self.step(events.CommitSucceeded({name: offset for name, (offset, _) in commit.offsets.items()}))
        else:
            self.step(events.CommitFailed("rebalance in progress", is_fenced=True))

    @precondition(lambda self: self.letters)
    @rule(works=st.sampled_from([True, True, False]), data=st.data())
    def a_dead_letter_is_answered(self, works: bool, data: st.DataObject) -> None:
        letter = self.letters.pop(data.draw(st.integers(0, len(self.letters) - 1)))
        self.answer(letter, works)

    @rule(partition=st.sampled_from(PARTITIONS), drained=st.booleans())
    def revoke(self, partition: TopicPartition, drained: bool) -> None:
        if partition not in self.owned:
            return
        self.step(events.Revoking([partition]))
        if drained:
            self.drain_partition(partition)
            assert self.session.is_quiet([partition])
        self.forget(partition)
        self.step(events.Revoked([partition]))

    @rule(partition=st.sampled_from(PARTITIONS))
    def lose(self, partition: TopicPartition) -> None:
        if partition not in self.owned:
            return
        self.forget(partition)
        before = dict(self.committed)
        self.step(events.Lost([partition]))
        assert partition not in self.session.assignment
        assert self.committed == before, "committed for a lost partition"

    @rule(partition=st.sampled_from(PARTITIONS))
    def someone_pauses(self, partition: TopicPartition) -> None:
        """Runs that end meanwhile free what waits for them, and nothing of it goes out: it mixes."""
        if partition in self.owned:
            self.step(events.PauseRequested([partition]))

    @rule()
    def someone_resumes_everything(self) -> None:
        self.step(events.ResumeRequested())

    @rule(partition=st.sampled_from(PARTITIONS))
    def someone_seeks(self, partition: TopicPartition) -> None:
        if partition not in self.owned:
            return
        at = self.committed.get(partition, (0, ""))[0]
        self.owned[partition] = at
        self.order[partition] = []
        self.step(events.SeekRequested(partition, at))  # a seek does not end the client's pause

    @rule(late=st.lists(st.sampled_from(PARTITIONS), max_size=3))
    def someone_drains(self, late: list[TopicPartition]) -> None:
        self.step(events.DrainRequested())
        before = {partition: list(self.order[partition]) for partition in PARTITIONS}
        unregistered = {name: self.session._partitions[name].tracker.end for name in self.owned}
        for partition in late:  # what the client had in hand before it heard of the pause
            self.fetch(partition, 4, despite_pause=True)
        assert {name: self.session._partitions[name].tracker.end for name in self.owned} == unregistered
        assert {partition: self.order[partition] for partition in PARTITIONS} == before

    # What must hold

    @invariant()
    def no_commit_passes_an_unsettled_record(self) -> None:
        if not hasattr(self, "committed"):
            return
        for partition, (offset, metadata) in self.committed.items():
            missing = set(range(offset)) - self.settled[partition]
            assert not missing, f"{partition}: committed {offset}, not settled: {sorted(missing)}"
            assert set(decode_finished(metadata, offset)) <= self.settled[partition]

    @invariant()
    def no_more_runs_than_allowed(self) -> None:
        if hasattr(self, "runs"):
            in_workers = [run for run in self.runs if self.is_current(run) and not run.is_handled]
            assert len(in_workers) <= CONCURRENCY

    # Carrying effects out

    def step(self, event: events.Event) -> None:
        for effect in self.session.step(event, self.now_ms):
            self.perform(effect)

    def perform(self, effect: Effect) -> None:
        match effect:
            case Dispatch(run):
                assert run.topic_partition in self.owned, "dispatched for a partition that is not owned"
                for record in run.records:
                    assert record.offset not in self.finished_here(run), "a settled record was delivered again"
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
            case WriteDeadLetter():
                self.letters.append(effect)
            case Notice() | _:
                pass

    def store(self, commit: Commit) -> None:
        for name, (offset, metadata) in commit.offsets.items():
            self.committed[name] = (offset, metadata)

    def finished_here(self, run: Run) -> set[int]:
        return {record.offset for record in self.order[run.topic_partition]}

    def is_current(self, run: Run) -> bool:
        state = self.session._partitions.get(run.topic_partition)
        return state is not None and state.epoch == run.epoch

    def forget(self, partition: TopicPartition) -> None:
        del self.owned[partition]
        self.paused.discard(partition)

    def handled(self, record: AnyRecord) -> None:
        """The handler has done it. In life its effects are out in the world, also when nobody owns the partition."""
        name = record.topic_partition
        self.settled[name].add(record.offset)
        earlier = self.order[name]
        if self.ordering is Ordering.PARTITION:
            assert all(other.offset < record.offset for other in earlier), "partition order"
        elif self.ordering is Ordering.KEY and record.raw_key is not None:
            same = [other.offset for other in earlier if other.raw_key == record.raw_key]
            assert all(offset < record.offset for offset in same), "key order"
        earlier.append(record)

    def finish(self, run: Run, fates: list[str], acknowledged: Sequence[int] = ()) -> None:
        """s: succeeds, r: asks for a retry, d: is dead, x: everything from here on is not delivered (cancelled).

        `acknowledged`: the order in which what the handler sent was acknowledged.
        """
        done: list[AnyRecord] = list(run.records[: run.done])
        failures: list[tuple[AnyRecord, Failure]] = []
        untouched: list[AnyRecord] = []
        failed_keys: set[bytes | None] = set()
        current = self.is_current(run)
        for record, fate in list(zip(run.records, fates, strict=True))[run.done :]:
            is_held = (self.ordering is Ordering.PARTITION and failures) or record.raw_key in failed_keys
            if untouched and self.ordering is Ordering.PARTITION:
                is_held = True
            if fate == "x" or is_held:
                untouched.append(record)
                if fate == "x" and record.raw_key is not None and self.ordering is Ordering.KEY:
                    failed_keys.add(record.raw_key)
            elif fate == "s":
                done.append(record)
                if current:
                    self.handled(record)
                else:
                    self.settled[record.topic_partition].add(record.offset)
            else:
                failures.append((record, Failure.of_outcome(Retry() if fate == "r" else Dead("bad"))))
                if self.ordering is Ordering.KEY and record.raw_key is not None:
                    failed_keys.add(record.raw_key)
        if not failures and not untouched:
            result = RunResult()
        else:
            place = {run.records[index].offset: number for number, index in enumerate(acknowledged)}
            done.sort(key=lambda record: place.get(record.offset, 0))
            result = RunResult(done=done, failures=failures, untouched=untouched)
        self.step(events.RunFinished(run, result))

    def answer(self, letter: WriteDeadLetter, works: bool) -> None:
        at: Any = (letter.topic_partition, letter.epoch, letter.record.offset)
        if works:
            # Acknowledged is settled, whoever owns the partition by now.
            self.settled[letter.topic_partition].add(letter.record.offset)
            self.step(events.WriteAcknowledged(*at))
        else:
            self.step(events.WriteFailed(*at, "the dead letter topic is gone"))

    def drain_partition(self, partition: TopicPartition) -> None:
        for run in [run for run in self.runs if run.topic_partition == partition]:
            self.runs.remove(run)
            assert run.is_cancelled
            self.finish(run, ["x"] * len(run.records))
        for letter in [letter for letter in self.letters if letter.topic_partition == partition]:
            self.letters.remove(letter)
            self.answer(letter, works=True)
        # FailureWriter whose write failed wait for a timer that no longer matters; the broker takes them now.
        state = self.session._partitions[partition]
        for pending in list(state.pending_writes.values()):
            self.answer(pending.effect, works=True)

    def teardown(self) -> None:
        """Everything starts to work: nothing may be lost, nothing may hang."""
        if not hasattr(self, "session"):
            return
        for partition in PARTITIONS:
            self.assign(partition)
        for _ in range(3_000):
            self.now_ms += 100
            self.session.should_hold(self.now_ms)
            self.step(events.Tick())
            self.step(events.ResumeRequested())
            for partition in PARTITIONS:
                self.fetch(partition, 50)
            while self.runs:
                run = self.runs.pop(0)
                self.finish(run, ["s"] * len(run.records))
            while self.letters:
                self.answer(self.letters.pop(0), works=True)
            while self.commits:
                self.the_coordinator_answers(works=True)
            self.no_commit_passes_an_unsettled_record()
            if self.session.is_idle and all(self.owned[p] == len(self.log[p]) for p in PARTITIONS):
                break
        else:
            raise AssertionError("the session does not come to rest")
        self.step(events.CloseRequested())
        assert self.session.is_quiet()
        self.step(events.Closed())
        for partition, keys in self.log.items():
            assert self.settled[partition] == set(range(len(keys)))
            if keys and self.order[partition]:
                assert self.committed[partition][0] == len(keys)


class ByPartition(SessionUnderChaos):
    ordering = Ordering.PARTITION


class ByKey(SessionUnderChaos):
    ordering = Ordering.KEY


class Unordered(SessionUnderChaos):
    ordering = Ordering.UNORDERED


class WithoutDeadLetters(SessionUnderChaos):
    """Records that cannot be handled stop their partition until someone resumes it."""

    ordering = Ordering.PARTITION
    dead_letter_topic = None


DEEP = settings(max_examples=max(100, settings().max_examples), stateful_step_count=60)

for machine in (ByPartition, ByKey, Unordered, WithoutDeadLetters):
    machine.TestCase.settings = DEEP

TestByPartition = ByPartition.TestCase
TestByKey = ByKey.TestCase
TestUnordered = Unordered.TestCase
TestWithoutDeadLetters = WithoutDeadLetters.TestCase
