"""A slot step by step: deliveries that fail, ends that cannot be read yet, and cancels that are kept."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest

from ottla.records import Record
from ottla.schedule import slot
from ottla.schedule.headers import CANCEL_HEADERS, FACTS, message_facts
from ottla.schedule.slot import (
    KEEP_CANCELS_MS,
    MAX_TRIES,
    Cause,
    ClaimSlot,
    DeletePrefix,
    FindLogEnd,
    LogStart,
    OwnedSlot,
    ReadLogStart,
    ReadRecords,
    RecordsRead,
    SlotState,
    WriteBatch,
    WriteRefused,
)
from ottla.schedule.wheel import WHEEL

NOW_MS = 1_700_000_000_000
HERE = WHEEL.slot_for(NOW_MS, NOW_MS)


class Desk:
    """The other side of one slot: a log, and deliveries that fail for some values."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.records: list[Record[Any]] = []
        self.slot = OwnedSlot(WHEEL, HERE)
        self.failing: set[bytes] = set()
        self.delivered: list[bytes | None] = []
        self.given_up: list[tuple[bytes | None, str]] = []
        self.writes: list[list[bytes | None]] = []
        self.cause = Cause.SUSPECTED
        self.away: set[bytes | None] = set()
        self.moved: list[bytes | None] = []
        self.deleted = 0
        self.chunk: int | None = None
        """So many records are read at once; None: all."""
        self.hidden = 0
        """So many records at the end cannot be read yet."""

    def message(self, value: bytes, *, in_ms: int = 0, id: bytes | None = None) -> None:
        facts = message_facts(topic="t", partition=None, due_ms=self.now_ms + in_ms, delay_ms=None, ttl_ms=None)
        self._add(id, value, [facts])

    def cancel(self, id: bytes) -> None:
        self._add(id, None, list(CANCEL_HEADERS))

    def _add(self, key: bytes | None, value: bytes | None, headers: list[Any]) -> None:
        offset = len(self.records)
        self.records.append(Record("s", HERE, offset, self.now_ms, key, value, headers, key, value))

    def tick(self, after_ms: int = 0) -> list[Any]:
        self.now_ms += after_ms
        asked: list[Any] = []
        tick: Generator[Any, Any, None] = self.slot.tick(self.now_ms)
        answer: Any = None
        while True:
            try:
                ask = tick.send(answer)
            except StopIteration:
                return asked
            asked.append(ask)
            answer = self._answer(ask)

    def _answer(self, ask: Any) -> Any:
        match ask:
            case ReadLogStart():
                return LogStart(0, self.records[0].timestamp_ms if self.records else None)
            case FindLogEnd():
                return len(self.records)
            case ReadRecords(offset):
                found = self.records[offset : len(self.records) - self.hidden][: self.chunk]
                return RecordsRead(found, found[-1].offset + 1 if found else offset)
            case DeletePrefix(to):
                self.deleted = to
            case WriteBatch():
                gone = [message.offset for message, _ in ask.move if message.value in self.away]
                if gone:
                    return WriteRefused("no leader", frozenset(gone), Cause.TARGET_UNAVAILABLE)
                self.moved += [message.value for message, _ in ask.move]
                values = [message.value for message in ask.deliver]
                self.writes.append(values)
                if self.failing & {value for value in values if value is not None}:
                    named = {message.offset for message in ask.deliver if message.value in self.failing}
                    offsets = named if self.cause is not Cause.SUSPECTED else ask.offsets
                    return WriteRefused("RecordTooLarge: no", frozenset(offsets), self.cause)
                self.delivered += values
                self.given_up += [(message.value, reason) for message, reason in ask.give_up]
        return None


def test_one_that_cannot_be_delivered_holds_up_nobody_and_is_given_up_in_the_end() -> None:
    desk = Desk()
    for value in (b"a", b"bad", b"c"):
        desk.message(value)
    desk.failing = {b"bad"}
    desk.tick()
    assert desk.delivered == [b"a", b"c"]
    for _ in range(40):
        desk.tick(1_000)
        desk.message(b"next")
    desk.tick()
    assert desk.delivered == [b"a", b"c", *[b"next"] * 40]
    assert desk.given_up == []
    for _ in range(60):
        desk.tick(1_000)
    assert desk.given_up == [(b"bad", "RecordTooLarge: no")]
    assert not desk.slot.waiting
    assert MAX_TRIES == 5


def test_those_that_are_surely_to_blame_are_left_out_and_tried_together() -> None:
    desk = Desk()
    desk.cause = Cause.CERTAIN
    for value in (b"a", b"bad", b"c", b"bad", b"e"):
        desk.message(value)
    desk.failing = {b"bad"}
    desk.tick()
    assert desk.writes == [[b"a", b"bad", b"c", b"bad", b"e"], [b"a", b"c", b"e"]]
    for _ in range(70):
        desk.tick(1_000)
    assert desk.writes[2:] == [[b"bad", b"bad"]] * (MAX_TRIES - 1) + [[]]
    assert desk.given_up == [(b"bad", "RecordTooLarge: no")] * 2
    assert not desk.slot.waiting


def test_what_goes_where_nothing_can_be_written_waits_and_is_never_given_up() -> None:
    desk = Desk()
    desk.cause = Cause.TARGET_UNAVAILABLE
    for value in (b"a", b"away", b"c"):
        desk.message(value)
    desk.failing = {b"away"}
    for _ in range(600):
        desk.tick(1_000)
    assert desk.delivered == [b"a", b"c"]
    assert desk.given_up == []
    desk.failing = set()
    for _ in range(6):
        desk.tick(1_000)
    assert desk.delivered == [b"a", b"c", b"away"]


def test_what_is_due_does_not_wait_for_a_slot_that_cannot_be_written_to() -> None:
    desk = Desk()
    desk.message(b"far", in_ms=40 * 86_400_000)
    desk.message(b"due")
    desk.away = {b"far"}
    for _ in range(20):
        desk.tick(1_000)
    assert desk.delivered == [b"due"]
    assert desk.moved == []
    desk.away = set()
    for _ in range(6):
        desk.tick(1_000)
    assert desk.moved == [b"far"]


def test_a_slot_does_not_close_before_all_that_belongs_elsewhere_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot, "MAX_MESSAGES_PER_WRITE", 2)
    desk = Desk()
    for number in range(40):
        desk.message(b"%d" % number, in_ms=3 * 86_400_000)
    closes_ms = WHEEL.closes_ms(HERE, desk.now_ms)
    assert closes_ms is not None
    desk.now_ms = closes_ms + 60_000  # nobody was there in its window
    ticks = 0
    while desk.slot.state is not SlotState.CLOSED:
        desk.tick()
        ticks += 1
    assert ticks > 1
    assert len(desk.moved) == 40
    assert desk.deleted == 40


def test_one_without_an_id_goes_by_where_it_was_written() -> None:
    desk = Desk()
    desk.message(b"a")
    desk.message(b"b")
    desk.cancel(f"s-{HERE}@0".encode())
    desk.cancel(b"elsewhere-3@1")
    desk.tick()
    assert desk.delivered == [b"b"]


def test_nothing_is_delivered_while_the_end_cannot_be_read() -> None:
    desk = Desk()
    desk.message(b"a", id=b"x")
    desk.cancel(b"x")
    desk.hidden = 1
    assert not [ask for ask in desk.tick() if isinstance(ask, WriteBatch)]
    desk.hidden = 0
    desk.tick()
    assert desk.delivered == []


def test_an_id_can_be_used_again_in_the_same_slot() -> None:
    desk = Desk()
    desk.message(b"old", id=b"x")
    desk.cancel(b"x")
    desk.message(b"new", id=b"x")
    desk.tick()
    assert desk.delivered == [b"new"]


def test_a_slot_closes_when_its_window_is_over_and_young_cancels_stay_in_the_log() -> None:
    desk = Desk()
    desk.message(b"a")
    desk.tick()
    closes_ms = WHEEL.closes_ms(HERE, desk.now_ms)
    assert closes_ms is not None
    desk.now_ms = closes_ms - 1
    desk.cancel(b"other")
    desk.tick()
    assert (desk.slot.state, desk.deleted) == (SlotState.OPEN, 0)
    desk.tick(1)
    assert (desk.slot.state, desk.deleted) == (SlotState.CLOSED, 1)
    assert desk.tick() == []
    desk.slot = OwnedSlot(WHEEL, HERE)  # another owner looks, and finds the cancel old enough to delete
    assert [type(ask) for ask in desk.tick(KEEP_CANCELS_MS)][:3] == [ReadLogStart, ClaimSlot, ReadLogStart]
    assert desk.deleted == 2


def test_a_slot_whose_window_is_far_away_costs_one_look() -> None:
    desk = Desk()
    desk.slot = OwnedSlot(WHEEL, (HERE + 16) % 32)
    assert [type(ask) for ask in desk.tick()] == [ReadLogStart]
    assert desk.tick(1_000) == []


def much_to_read(monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A slot that reads two records in a tick."""
    monkeypatch.setattr(slot, "MAX_READS_PER_TICK", 2)
    desk = Desk()
    desk.chunk = 1
    return desk


def test_a_slot_with_much_to_read_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = much_to_read(monkeypatch)
    for number in range(5):
        desk.message(b"%d" % number)
    assert [type(ask) for ask in desk.tick()] == [
        ReadLogStart,
        ClaimSlot,
        ReadLogStart,
        FindLogEnd,
        ReadRecords,
        ReadRecords,
    ]
    assert desk.slot.is_behind
    assert [type(ask) for ask in desk.tick(1)] == [ReadRecords, ReadRecords]
    assert desk.slot.is_behind
    assert [type(ask) for ask in desk.tick(1)] == [ReadRecords, WriteBatch]
    assert not desk.slot.is_behind
    assert sorted(desk.delivered) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_cancel_far_behind_its_message_is_read_before_anything_is_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = much_to_read(monkeypatch)
    desk.message(b"no", id=b"x")
    for _ in range(5):
        desk.message(b"yes")
    desk.cancel(b"x")
    for _ in range(6):
        desk.tick(1)
    assert desk.delivered == [b"yes"] * 5


def test_a_slot_that_is_written_to_faster_than_it_is_read_delivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was due before an end was asked for does not wait for the records behind that end."""
    desk = much_to_read(monkeypatch)
    desk.message(b"first", id=b"x")
    desk.cancel(b"y")
    desk.message(b"first", id=b"y")
    for _ in range(4):
        desk.tick(1)
        for _ in range(3):
            desk.message(b"later", in_ms=1)
    assert desk.delivered[:2] == [b"first"] * 2


def test_a_cancel_is_honoured_that_comes_while_its_slot_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was acknowledged before the message was due, and lies behind the end up to which the slot is read."""
    desk = much_to_read(monkeypatch)
    desk.message(b"cancelled", in_ms=10, id=b"x")
    for _ in range(3):
        desk.message(b"due")
    desk.tick()
    desk.cancel(b"x")
    desk.tick(20)
    assert desk.delivered == [b"due"] * 3
    for _ in range(3):
        desk.tick(1)
    assert desk.delivered == [b"due"] * 3


def test_ranges_that_anybody_wrote_cost_as_much_as_there_are_and_no_more() -> None:
    desk = Desk()
    for number in range(2_000):
        desk.message(b"%d" % number, in_ms=1_000)
    ranges = [[start, start + 9] for start in range(1_000, 10**18, 10**13)]
    desk._add(None, json.dumps(ranges).encode(), [(FACTS, b"done")])  # 100,000 ranges, 9 messages of each
    desk.tick()
    assert set(range(2_000)) - set(desk.slot.waiting) == set(range(1_000, 1_009))
    desk._add(None, b"[" * 2_000, [(FACTS, b"done")])
    desk.tick()
    assert desk.slot.unreadable == 1
    desk.tick(1_000)
    assert len(desk.delivered) == 2_000 - 9
