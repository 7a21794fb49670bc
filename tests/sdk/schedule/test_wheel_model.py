"""The wheel against a model: crashes, zombies, absent schedulers, clocks that differ, and cancels at any moment.

The slots run as they do over Kafka: each thing that a slot asks for is a step, and between two steps anything may
happen. The oracle knows every message by its id: delivered once, never early, never after its cancel, never lost.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.records import Header, Record
from ottla.schedule import slot as slot_module
from ottla.schedule.headers import CANCEL_HEADERS, ScheduledMessage, delivered, done_record, message_facts, rolled
from ottla.schedule.slot import (
    Cause,
    ClaimSlot,
    DeletePrefix,
    FindLogEnd,
    LogStart,
    OwnedSlot,
    ReadLogStart,
    ReadRecords,
    RecordsRead,
    ReleaseSlot,
    SlotState,
    WriteBatch,
    WriteRefused,
)
from ottla.schedule.wheel import WHEEL, Level, Wheel

START_MS = 1_700_000_000_000
SMALL = Wheel((Level(0, 8, 15 * 60_000), Level(8, 8, 90 * 60_000)))
"""Fewer slots: what is far away is moved more often."""

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


class Crash(Exception):
    """The scheduler died."""


@dataclass
class Log:
    """One partition of the schedule topic, as a read_committed reader sees it."""

    records: list[Record[Any]] = field(default_factory=list)
    start: int = 0
    end: int = 0
    epoch: int = 0


@dataclass
class Expected:
    due_ms: int
    cancelled_ms: int | None = None
    delivered_ms: list[int] = field(default_factory=list)


class World:
    """Brokers with a clock, a schedule topic, and what was promised to senders."""

    def __init__(self, seed: int, wheel: Wheel) -> None:
        self.random = Random(seed)
        self.wheel = wheel
        self.now_ms = START_MS
        self.logs = [Log() for _ in range(wheel.partitions)]
        self.expected: dict[str, Expected] = {}
        self.moved = 0
        self.crashes = 0

    def append(self, partition: int, key: bytes | None, value: bytes | None, headers: list[Header]) -> None:
        log = self.logs[partition]
        gap = self.random.choice([0, 0, 0, 1])  # the markers of transactions take offsets
        record: Record[Any] = Record(
            "ottla.schedule.model", partition, log.end + gap, self.now_ms, key, value, list(headers), key, value
        )
        log.records.append(record)
        log.end = record.offset + 1

    # Senders

    def send(self, delay_ms: int, *, skew_ms: int, is_relative: bool) -> None:
        id = f"m{len(self.expected)}"
        at_ms = self.now_ms + skew_ms
        due_ms = self.now_ms + delay_ms
        facts = message_facts(
            topic="target",
            partition=None,
            due_ms=None if is_relative else due_ms,
            delay_ms=delay_ms if is_relative else None,
            ttl_ms=None,
        )
        shown_ms = at_ms + delay_ms if is_relative else due_ms
        self.append(self.wheel.slot_for(shown_ms, at_ms), id.encode(), b"v", [facts])
        self.expected[id] = Expected(due_ms)

    def cancel(self, id: str) -> Generator[None, None, None]:
        """Written to every slot, one after the other; acknowledged when all have it."""
        order = list(range(self.wheel.partitions))
        self.random.shuffle(order)
        for partition in order:
            self.append(partition, id.encode(), None, list(CANCEL_HEADERS))
            yield
        expected = self.expected[id]
        if expected.cancelled_ms is None:
            expected.cancelled_ms = self.now_ms

    # A scheduler's side

    def answer(self, slot: OwnedSlot, asked: Any, epoch: int) -> Any:
        """Do what the slot asks. Raises Crash for one that is fenced."""
        log = self.logs[slot.partition]
        match asked:
            case ClaimSlot():
                log.epoch += 1
                return log.epoch
            case ReadLogStart():
                first = next((record for record in log.records if record.offset >= log.start), None)
                return LogStart(log.start, None if first is None else first.timestamp_ms)
            case FindLogEnd():
                return log.end
            case ReadRecords(offset):
                if offset < log.start:
                    raise Crash("out of range: deleted by one that was paused")
                found = [record for record in log.records if record.offset >= offset][: self.random.randint(1, 50)]
                return RecordsRead(found, found[-1].offset + 1 if found else log.end)
            case WriteBatch():
                if log.epoch != epoch:
                    raise Crash("fenced")
                for message in asked.deliver:
                    self.expected[message.id].delivered_ms.append(self.now_ms)
                    assert delivered(message).topic == "target"
                for message, to in asked.move:
                    if self.random.random() < 0.1:
                        for _ in self.cancel(message.id):  # it crosses the move
                            pass
                    moved = rolled(message, to)
                    assert moved.partition is not None
                    self.append(moved.partition, moved.key, moved.value, moved.headers)
                    self.moved += 1
                assert not asked.give_up
                done = done_record("ottla.schedule.model", slot.partition, asked.offsets)
                self.append(slot.partition, done.key, done.value, done.headers)
            case DeletePrefix(to):
                log.start = max(log.start, to)
                log.records = [record for record in log.records if record.offset >= log.start]
            case ReleaseSlot():
                pass
        return None


def ticking(world: World, slot: OwnedSlot, now_ms: int, *, may_crash: bool) -> Generator[None, None, None]:
    """One tick, step by step. It dies where the world lets it: also behind a commit that it does not hear of."""
    epoch = world.logs[slot.partition].epoch
    tick = slot.tick(now_ms)
    answer: Any = None
    while True:
        try:
            asked = tick.send(answer)
        except StopIteration:
            return
        yield
        if may_crash and world.random.random() < 0.01:
            raise Crash("before")
        answer = world.answer(slot, asked, epoch)
        if isinstance(asked, ClaimSlot):
            epoch, answer = answer, None
        yield
        if may_crash and world.random.random() < 0.01:
            raise Crash("behind")


def run(world: World, *, messages: int, may_crash: bool, clock_error_ms: int) -> None:
    """Send and cancel while schedulers come and go, then let all become due."""
    random = world.random
    slots = [OwnedSlot(world.wheel, partition) for partition in range(world.wheel.partitions)]
    zombies: list[Generator[None, None, None]] = []
    cancels: list[Generator[None, None, None]] = []

    def meanwhile() -> None:
        """What others do between two steps of a slot."""
        if random.random() < 0.3:
            world.now_ms += random.randint(0, 40)
        if cancels and random.random() < 0.8:
            cancel = random.choice(cancels)
            if next(cancel, StopIteration) is StopIteration:
                cancels.remove(cancel)
        if zombies and random.random() < 0.1:
            zombie = random.choice(zombies)
            try:
                if next(zombie, StopIteration) is StopIteration:
                    zombies.remove(zombie)
            except Crash:
                zombies.remove(zombie)

    def tick_all() -> None:
        for partition, slot in enumerate(slots):
            work = ticking(world, slot, world.now_ms - random.randint(0, clock_error_ms), may_crash=may_crash)
            try:
                while next(work, StopIteration) is not StopIteration:
                    meanwhile()
                    if may_crash and random.random() < 0.003:
                        zombies.append(work)
                        raise Crash("paused")
            except Crash:
                world.crashes += 1
                slots[partition] = OwnedSlot(world.wheel, partition)

    far = [0, 1_000, MINUTE, 20 * MINUTE, HOUR, 5 * HOUR, 11 * HOUR, 2 * DAY, 9 * DAY]
    while len(world.expected) < messages:
        for _ in range(random.randint(0, 6)):
            skew_ms = random.choice([0, 0, 0, -5_000, 5_000, -20 * MINUTE])
            world.send(random.randint(0, random.choice(far)), skew_ms=skew_ms, is_relative=random.random() < 0.5)
        if random.random() < 0.3 and world.expected:
            cancels.append(world.cancel(random.choice(list(world.expected))))
        if random.random() < 0.05:  # nobody is there for a while
            world.now_ms += random.choice([HOUR, 10 * HOUR, 3 * DAY])
        world.now_ms += random.choice([100, 100, 1_000, 5 * MINUTE, 40 * MINUTE])
        tick_all()
    last_ms = max(expected.due_ms for expected in world.expected.values())
    end_ms = max(last_ms, world.now_ms) + DAY  # all may be due already, after days without a scheduler
    while world.now_ms <= end_ms:
        world.now_ms += random.choice([MINUTE, 30 * MINUTE, 2 * HOUR])
        tick_all()
    while cancels:
        meanwhile()


def check(world: World, *, most_late_ms: int | None = None) -> None:
    for id, expected in world.expected.items():
        what = f"{id}: {expected}"
        assert len(expected.delivered_ms) <= 1, f"twice: {what}"
        cancelled_ms = expected.cancelled_ms
        if expected.delivered_ms:
            (at_ms,) = expected.delivered_ms
            assert at_ms >= expected.due_ms, f"early: {what}"
            is_cancelled = cancelled_ms is not None and cancelled_ms < expected.due_ms
            assert not is_cancelled, f"after its cancel: {what}"
            if most_late_ms is not None:
                assert at_ms - expected.due_ms <= most_late_ms, f"late: {what}"
        else:
            assert cancelled_ms is not None, f"lost: {what}"


@pytest.mark.complete
@example(seed=226865123, is_small=True, most_held=1, most_chunks=1)  # a cancel was deleted before a copy behind it
@given(
    seed=st.integers(0, 2**32),
    is_small=st.booleans(),
    most_held=st.sampled_from([1, 3, 10, 100_000]),
    most_chunks=st.sampled_from([1, 2, 4]),
)
def test_once_never_early_never_after_a_cancel_whatever_dies(
    seed: int, is_small: bool, most_held: int, most_chunks: int
) -> None:
    world = World(seed, SMALL if is_small else WHEEL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slot_module, "MAX_HELD", most_held)
        patch.setattr(slot_module, "MAX_READS_PER_TICK", most_chunks)
        run(world, messages=40, may_crash=True, clock_error_ms=2_000)
    check(world)
    assert all(not log.records or log.start > 0 for log in world.logs if log.end > 200)


def test_the_model_does_what_it_says() -> None:
    """Or the property above would prove nothing."""
    moved = crashes = cancelled = 0
    for seed in range(15):
        world = World(seed, SMALL)
        run(world, messages=60, may_crash=True, clock_error_ms=0)
        check(world)
        moved, crashes = moved + world.moved, crashes + world.crashes
        cancelled += sum(not expected.delivered_ms for expected in world.expected.values())
    assert moved > 100
    assert crashes > 100
    assert cancelled > 50


def test_with_a_scheduler_that_is_always_there_nothing_is_late() -> None:
    for seed in range(5):
        world = World(seed, SMALL)
        slots = [OwnedSlot(SMALL, partition) for partition in range(SMALL.partitions)]
        end_ms = START_MS + DAY
        while world.now_ms < end_ms:
            if world.now_ms < START_MS + 12 * HOUR and world.random.random() < 0.2:
                world.send(world.random.randint(0, 11 * HOUR), skew_ms=0, is_relative=True)
            world.now_ms += MINUTE // 2
            for slot in slots:
                for _ in ticking(world, slot, world.now_ms, may_crash=False):
                    pass
        check(world, most_late_ms=MINUTE // 2)
        assert all(not log.records for log in world.logs if log.start == log.end)


def test_memory_is_that_of_the_open_slots() -> None:
    world = World(1, WHEEL)
    slots = [OwnedSlot(WHEEL, partition) for partition in range(WHEEL.partitions)]
    for number in range(2_000):
        world.send(number * 3 * HOUR // 20, skew_ms=0, is_relative=True)
    for slot in slots:
        for _ in ticking(world, slot, world.now_ms, may_crash=False):
            pass
    assert sum(len(slot.waiting) for slot in slots) < 200


@pytest.mark.parametrize("late_ms", [0, 20 * HOUR], ids=["in time", "window over"])
def test_what_is_to_be_moved_on_is_held_a_part_at_a_time(late_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand times as many may be scheduled for later than the wheel reaches, and all meet in one slot."""
    monkeypatch.setattr(slot_module, "MAX_HELD", 50)
    monkeypatch.setattr(slot_module, "MAX_MESSAGES_PER_WRITE", 20)
    world = World(2, WHEEL)
    for number in range(1_500):
        world.send(9 * DAY + number * MINUTE if number % 10 else 7 * DAY + 6 * HOUR, skew_ms=0, is_relative=False)
    (partition,) = {record.partition for log in world.logs for record in log.records}
    for number in range(0, 1_500, 100):
        for _ in world.cancel(f"m{number + 1}"):
            pass
    world.now_ms += 7 * DAY + 5 * HOUR + late_ms
    slots, held, crashes = [OwnedSlot(WHEEL, partition)], 0, 0
    is_open = True
    while is_open:
        world.now_ms += MINUTE
        try:
            for _ in ticking(world, slots[0], world.now_ms, may_crash=crashes < 5):
                held = max(held, len(slots[0].waiting))
        except Crash:
            crashes += 1
            slots = [OwnedSlot(WHEEL, partition)]
        else:
            is_open = slots[0].state is SlotState.OPEN
    assert crashes > 0
    assert held < 50 + 150 + 50, "what is due in this window, what is to be moved, and a chunk"
    assert world.moved == 1_500 - 150 - 15, "each once"
    assert sum(len(one.delivered_ms) for one in world.expected.values()) == 150
    run_out(world)
    check(world)


def run_out(world: World) -> None:
    """Let all become due."""
    slots = [OwnedSlot(world.wheel, partition) for partition in range(world.wheel.partitions)]
    last_ms = max(expected.due_ms for expected in world.expected.values())
    while world.now_ms <= last_ms + DAY:
        world.now_ms += HOUR
        for slot in slots:
            for _ in ticking(world, slot, world.now_ms, may_crash=False):
                pass


@pytest.mark.parametrize("partition", range(WHEEL.partitions))
def test_a_slot_is_open_around_each_of_its_windows_and_settled_between_them(partition: int) -> None:
    for level in WHEEL.levels:
        if not level.first <= partition < level.first + level.slots:
            continue
        width, turn = level.width_ms, level.width_ms * level.slots
        window_ms = (partition - level.first) * width + turn * (START_MS // turn)
        assert WHEEL.closes_ms(partition, window_ms - MINUTE - 1) is None
        for at_ms in (window_ms - MINUTE, window_ms, window_ms + width, window_ms + 2 * width - 1):
            assert WHEEL.closes_ms(partition, at_ms) == window_ms + 2 * width
        assert WHEEL.closes_ms(partition, window_ms + 2 * width) is None
        assert WHEEL.settled_ms(partition, window_ms + 2 * width - 1) == window_ms + 2 * width - turn
        assert WHEEL.settled_ms(partition, window_ms + 2 * width) == window_ms + 2 * width


@given(now_ms=st.integers(START_MS, START_MS + 30 * DAY), in_ms=st.integers(-DAY, 400 * DAY))
def test_a_record_is_put_where_it_is_read_in_time(now_ms: int, in_ms: int) -> None:
    partition = WHEEL.slot_for(now_ms + in_ms, now_ms)
    looked_ms = max(now_ms, min(now_ms + in_ms, now_ms + WHEEL.levels[-1].horizon_ms))
    assert WHEEL.closes_ms(partition, looked_ms) is not None
    assert in_ms <= 0 or in_ms > WHEEL.levels[-1].horizon_ms or WHEEL.belongs(partition, now_ms + in_ms, now_ms)


@given(now_ms=st.integers(START_MS, START_MS + 30 * DAY), delay_ms=st.integers(0, 20 * DAY), is_small=st.booleans())
def test_a_delay_reaches_the_slot_of_its_due_time_whenever_it_is_sent(
    now_ms: int, delay_ms: int, is_small: bool
) -> None:
    wheel = SMALL if is_small else WHEEL
    first, slots, width_ms, ahead_ms = reach = wheel.reach_of(delay_ms)
    slot, from_ms, until_ms = reach.span(now_ms)
    assert slot == first + (now_ms + ahead_ms) // width_ms % slots == wheel.slot_for(now_ms + delay_ms, now_ms)

    assert from_ms <= now_ms < until_ms
    assert reach.span(from_ms) == reach.span(until_ms - 1) == (slot, from_ms, until_ms)
    assert slot not in (reach.span(from_ms - 1)[0], reach.span(until_ms)[0])


def test_a_cancel_stays_as_long_as_a_copy_behind_it() -> None:
    """Between them a message waits for a target that is away: nothing behind it is deleted, and the next owner of the
    slot reads the copy again."""
    world = World(0, SMALL)
    home = SMALL.slot_for(START_MS + 5 * MINUTE, START_MS)

    def headers(due_ms: int) -> list[Header]:
        return [message_facts(topic="target", partition=None, due_ms=due_ms, delay_ms=None, ttl_ms=None)]

    world.append(home + 1, b"gone", b"v", headers(START_MS + 6 * MINUTE))
    (moved,) = map(slot_module.parse, world.logs[home + 1].records)
    assert isinstance(moved, ScheduledMessage)
    copy = rolled(moved, home)
    world.append(home, b"gone", None, list(CANCEL_HEADERS))
    world.append(home, b"stays", b"v", headers(START_MS + 5 * MINUTE))
    world.append(home, copy.key, copy.value, copy.headers)
    world.expected = {id: Expected(START_MS + 5 * MINUTE) for id in ("stays", "gone")}

    def tick(slot: OwnedSlot, *, is_away: bool) -> None:
        work, answer = slot.tick(world.now_ms), None
        while True:
            try:
                asked = work.send(answer)
            except StopIteration:
                return
            if is_away and isinstance(asked, WriteBatch):
                answer = WriteRefused("away", frozenset(asked.offsets), Cause.TARGET_UNAVAILABLE)
            else:
                answer = world.answer(slot, asked, world.logs[home].epoch)

    for is_away in (True, False):
        slot = OwnedSlot(SMALL, home)  # another owner
        until_ms = world.now_ms + HOUR
        while world.now_ms < until_ms:
            world.now_ms += MINUTE
            tick(slot, is_away=is_away)
        assert bool(world.expected["stays"].delivered_ms) != is_away
    assert not world.expected["gone"].delivered_ms
    assert not [record for record in world.logs[home].records if record.key == b"gone"]
