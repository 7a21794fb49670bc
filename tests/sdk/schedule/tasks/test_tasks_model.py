"""Owners of recurring tasks against a model: crashes and zombies between any two steps, requests at any moment,
compaction, and times without an owner. The oracle applies the requests one after the other to ideal clocks.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.records import Record, TimestampType
from ottla.schedule.slot import Cause, FindLogEnd, ReadRecords, RecordsRead, WriteRefused
from ottla.schedule.tasks.owned_tasks import ClaimTasks, OwnedTasks, WriteTasks
from ottla.schedule.tasks.task_records import (
    Definition,
    definition_record,
    parse_task_record,
    pause_record,
    removal_record,
    state_record,
    trigger_record,
)

START_MS = 1_700_000_000_000
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
IDS = ("g/a", "g/b")


class Crash(Exception):
    """The owner died, or was fenced."""


@dataclass
class World:
    """Brokers with a clock, the tasks' partition, and the runs that were committed."""

    random: Random
    now_ms: int = START_MS
    records: list[Record[Any]] = field(default_factory=list)
    requests: list[tuple[int, str, Any]] = field(default_factory=list)
    """(append time, id, definition or pause or None to remove) in their order, as the oracle sees them."""
    triggered: list[str] = field(default_factory=list)
    end: int = 0
    epoch: int = 0
    settled_ms: int = 0
    """When an owner had last applied all requests."""
    runs: list[tuple[str, int, bool]] = field(default_factory=list)
    """(id, due time, was it triggered)"""
    crashes: int = 0

    def append(self, key: bytes | None, value: bytes | None) -> None:
        gap = self.random.choice([0, 0, 1])  # the markers of transactions take offsets
        record: Record[Any] = Record(
            "ottla.tasks.model", 0, self.end + gap, self.now_ms, key, value, [], key, value,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
        )  # fmt: skip
        self.records.append(record)
        self.end = record.offset + 1

    def request(self, missed: str) -> None:
        id = self.random.choice(IDS)
        kind = self.random.choice(["definition", "definition", "pause", "resume", "trigger", "remove"])
        if kind == "definition":
            cron = self.random.choice(["*/20 * * * *", "0 * * * *", "30 */2 * * *"])
            version = (1, self.random.choice([9, 9, 10]))
            change: Any = Definition(id=id, version=version, topic="runs", missed=missed, cron=cron)  # type: ignore[arg-type]
            self.append(*definition_record(change))
        elif kind == "trigger":
            name = f"n{len(self.triggered)}"
            self.append(*trigger_record(id, name))
            self.triggered.append(id)
            return
        elif kind == "remove":
            change = None
            self.append(*removal_record(id))
        else:
            change = kind == "pause"
            self.append(*pause_record(id, is_paused=change))
        self.requests.append((self.now_ms, id, change))

    def compact(self) -> None:
        """Keep the last record of each key, of those that are a day old. An owner has seen them in that day: this is
        what `min.compaction.lag.ms` is for."""
        if self.settled_ms < self.now_ms - DAY:
            return
        old = [record for record in self.records if record.timestamp_ms < self.now_ms - DAY]
        last = {record.raw_key: record.offset for record in old}
        behind = {record.raw_key for record in self.records[len(old) :]}
        kept = [record for record in old if last[record.raw_key] == record.offset and record.raw_key not in behind]
        self.records = kept + self.records[len(old) :]

    def answer(self, asked: Any, epoch: int) -> Any:
        match asked:
            case ClaimTasks():
                self.epoch += 1
                return 0
            case FindLogEnd():
                return self.end
            case ReadRecords(offset):
                found = [record for record in self.records if record.offset >= offset][: self.random.randint(1, 20)]
                return RecordsRead(found, found[-1].offset + 1 if found else self.end)
            case WriteTasks(writes):
                if self.epoch != epoch:
                    raise Crash("fenced")
                if self.random.random() < 0.1:
                    blamed = frozenset({self.random.randrange(len(writes))})
                    return WriteRefused("UnknownTopic: runs", blamed, Cause.CERTAIN)
                for write in writes:
                    self.runs += [(write.id, run.due_ms, run.trigger is not None) for run in write.runs]
                    if write.is_changed:
                        record = state_record("ottla.tasks.model", write.id, write.state, read_to=write.read_to)
                        self.append(record.key, record.value)
                    for key in write.triggers:
                        self.append(key, None)
        return None


def ticking(world: World, tasks: OwnedTasks, epoch: list[int], *, may_crash: bool) -> Generator[None, None, None]:
    tick = tasks.tick(world.now_ms)
    answer: Any = None
    while True:
        try:
            asked = tick.send(answer)
        except StopIteration:
            return
        yield
        if may_crash and world.random.random() < 0.03:
            raise Crash("before")
        answer = world.answer(asked, epoch[0])
        if isinstance(asked, ClaimTasks):
            epoch[0] = world.epoch
        yield
        if may_crash and world.random.random() < 0.03:
            raise Crash("behind")


def run(world: World, *, missed: str, steps: int) -> None:
    random = world.random
    tasks, epoch = OwnedTasks(), [0]
    zombies: list[Generator[None, None, None]] = []

    def tick(*, may_crash: bool) -> None:
        nonlocal tasks, epoch
        began_ms, work = world.now_ms, ticking(world, tasks, epoch, may_crash=may_crash)
        try:
            while next(work, StopIteration) is not StopIteration:
                if random.random() < 0.1:
                    world.now_ms += random.randint(0, 40)
                if random.random() < 0.05 and may_crash:
                    world.request(missed)
                if zombies and random.random() < 0.2:
                    zombie = random.choice(zombies)
                    try:
                        if next(zombie, StopIteration) is StopIteration:
                            zombies.remove(zombie)
                    except Crash:
                        zombies.remove(zombie)
                if may_crash and random.random() < 0.02:
                    zombies.append(work)
                    raise Crash("paused")
            if not any(task.requests for task in tasks.tasks.values()):
                world.settled_ms = began_ms
        except Crash:
            world.crashes += 1
            tasks, epoch = OwnedTasks(), [0]

    for _ in range(steps):
        if random.random() < 0.3:
            world.request(missed)
        if random.random() < 0.1:
            world.compact()
        away_ms = random.choice([1_100, 1_100, 5 * MINUTE, 50 * MINUTE, 3 * HOUR, 11 * HOUR])
        world.now_ms += away_ms
        tick(may_crash=True)
    for _ in range(200):
        world.now_ms += 6_000
        tick(may_crash=False)


def ideal(world: World, id: str) -> list[int]:
    """The due times of a task, if a scheduler were always there."""
    found: list[int] = []
    definition: Definition | None = None
    is_paused, next_ms = False, None
    for at_ms, _, change in [*(each for each in world.requests if each[1] == id), (world.now_ms, id, "end")]:
        while definition is not None and not is_paused and next_ms is not None and next_ms <= at_ms:
            found.append(next_ms)
            next_ms = definition.due_times.after(next_ms)
        if isinstance(change, Definition):
            if change.replaces(definition):
                if definition is None or change.cron != definition.cron:
                    next_ms = change.due_times.after(at_ms)
                definition = change
        elif change is None:
            definition, is_paused = None, False
        elif isinstance(change, bool) and definition is not None and change is not is_paused:
            is_paused = change
            next_ms = next_ms if is_paused else definition.due_times.after(at_ms)
    return found


def due_times(world: World, id: str) -> list[int]:
    """The due times of the runs in the order of their dispatch, without triggered ones."""
    return [due_ms for name, due_ms, is_triggered in world.runs if name == id and not is_triggered]


@pytest.mark.complete
@given(seed=st.integers(0, 2**32))
@example(seed=2)  # declared and removed before an owner saw it
@example(seed=31)  # a declaration before a removal came back after a restart
def test_each_due_time_is_run_once_whatever_dies(seed: int) -> None:
    world = World(Random(seed))
    run(world, missed="all", steps=40)
    assert {id: due_times(world, id) for id in IDS} == {id: ideal(world, id) for id in IDS}
    assert sum(is_triggered for _, _, is_triggered in world.runs) <= len(world.triggered)


@pytest.mark.complete
@given(seed=st.integers(0, 2**32))
def test_with_one_run_for_all_that_were_missed_no_due_time_comes_twice_or_out_of_order(seed: int) -> None:
    world = World(Random(seed))
    run(world, missed="one", steps=40)
    for id in IDS:
        due, wanted = due_times(world, id), ideal(world, id)
        assert due == sorted(set(due))
        assert set(due) <= set(wanted)
        assert due[-1:] == wanted[-1:]


def test_the_model_does_what_it_says() -> None:
    """Or the properties above would prove nothing."""
    runs = crashes = triggered = compacted = 0
    for seed in range(10):
        world = World(Random(seed))
        run(world, missed="all", steps=40)
        assert {id: due_times(world, id) for id in IDS} == {id: ideal(world, id) for id in IDS}
        runs, crashes = runs + len(world.runs), crashes + world.crashes
        triggered += sum(is_triggered for _, _, is_triggered in world.runs)
        compacted += len(world.records) < world.end // 2
    assert runs > 500
    assert crashes > 50
    assert triggered > 10
    assert compacted > 2


def test_the_records_of_the_model_are_read() -> None:
    world = World(Random(3))
    for _ in range(50):
        world.request("all")
    assert all(parse_task_record(record) is not None for record in world.records)
