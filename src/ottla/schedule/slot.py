"""One slot of the wheel: its waiting, due and cancelled messages, and when its log may be emptied.

`tick(now_ms)` is a procedure (`ottla.stepping`): it yields requests (`ClaimSlot`, `ReadLogStart`, `FindLogEnd`,
`ReadRecords`, `WriteBatch`, `DeletePrefix`, `ReleaseSlot`) and is sent the responses. `now_ms` is never ahead of the
brokers' clock.

| state | entered | does |
|---|---|---|
| `UNKNOWN` | the slot was assigned | checks whether an earlier window left records |
| `CLOSED` | nothing is to be done until its window | nothing |
| `OPEN` | shortly before its window, or records were left | each tick: reads to the end of the log, |
| | | delivers due messages, moves messages of other slots |

Why a cancel that was acknowledged before the due time is honoured: `FindLogEnd` is yielded after `now_ms` was taken, so
every such cancel lies before the end that it finds, and it is read before anything is delivered. A long log takes
several ticks of `MAX_READS_PER_TICK` each, as other slots wait meanwhile; the messages delivered then were due before
the end was found.

Why nothing is delivered twice: deliveries and the `done` record of their offsets are one transaction. The member that
opens a slot claims it first, which aborts every transaction of an earlier owner, and reads it from its start. An
earlier owner that was paused may still delete the delivered prefix: then the next `ReadRecords` is refused, as its
offset no longer exists, and the slot is reset.

Why nothing is lost: only a prefix is deleted, and it ends before the first message that waits.

Why memory is bounded: at most `MAX_HELD` messages that are to be moved are held. Later ones are skipped while the slot
is read, and read again after the first ones were moved. By then all cancels and deliveries are known, as the whole slot
was read.

A message may be moved to another slot while its cancel is written to all slots. The new slot therefore remembers
cancels, and drops a moved copy whose id was cancelled. It keeps the cancels in its log for as long as a move may take,
and longer while a dropped copy lies behind its cancel, because the next owner reads the copy again. While some messages
are skipped, no cancel is deleted: one of them may be such a copy.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.records import Record
from ottla.schedule.headers import Cancel, Done, ScheduledMessage, parse
from ottla.schedule.wheel import Wheel
from ottla.stepping import Procedure

MAX_MESSAGES_PER_WRITE: Final = 4_000
"""Messages per transaction. A transaction costs as much as two hundred messages."""

MAX_BYTES_PER_WRITE: Final = 8_000_000
"""Bytes of the values in one transaction."""

MAX_HELD: Final = 100_000
"""Messages held before it is decided where they belong. Beyond this, messages to be moved are left unread."""

MAX_READS_PER_TICK: Final = 2
"""Reads per tick of a slot, some 20,000 messages of a hundred bytes; other slots wait meanwhile."""

KEEP_CANCELS_MS: Final = 15 * 60_000
"""Minimum retention of a cancel in its slot: longer than a transaction that moves a message may stay open."""

REUSED_MS: Final = 5 * 60_000
"""Maximum difference of the brokers' clocks. An id may be used again this long after its cancel."""

_MAX_WRITES: Final = 5
"""Transactions per tick of a slot; other slots and the group wait meanwhile."""

_MAX_WRITTEN: Final = 2 * MAX_MESSAGES_PER_WRITE
"""Messages in the transactions of one tick."""

_OFFSET_BITS: Final = 63
_OFFSET: Final = (1 << _OFFSET_BITS) - 1
_POSITION_DIGITS: Final = 19

MAX_TRIES: Final = 5
_BACKOFF_MS: Final = 1_000
_AWAY_MS: Final = 5_000
"""Delay of messages whose target cannot be written to now."""


class SlotState(Enum):
    """See the table of the module."""

    UNKNOWN = "unknown"
    CLOSED = "closed"
    OPEN = "open"


class ClaimSlot(NamedTuple):
    """Fence all other writers of this slot. Response: None."""


class ReleaseSlot(NamedTuple):
    """Release the slot after it was closed: no writes follow for a while. Response: None."""


class ReadLogStart(NamedTuple):
    """Read where the log begins. Response: a `LogStart`."""


class LogStart(NamedTuple):
    """`first_ms` is the append time of the first record, None for an empty log."""

    start: int
    first_ms: int | None


class FindLogEnd(NamedTuple):
    """Find the end of the log for read_committed, at a moment after the request. Response: an offset."""


class ReadRecords(NamedTuple):
    """Read records from this offset on. Response: `RecordsRead`."""

    offset: int


class RecordsRead(NamedTuple):
    records: Sequence[Record[Any]]
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteBatch:
    """Deliver, move and give up messages in one transaction with the `done` record. Response: None when committed, or
    `WriteRefused`.
    """

    deliver: Sequence[ScheduledMessage] = ()
    move: Sequence[tuple[ScheduledMessage, int]] = ()
    give_up: Sequence[tuple[ScheduledMessage, str]] = ()

    @property
    def offsets(self) -> list[int]:
        messages = [*self.deliver, *(message for message, _ in self.move), *(message for message, _ in self.give_up)]
        return [message.offset for message in messages]


class Cause(Enum):
    """Certainty that the named messages caused the refusal."""

    CERTAIN = "certain"
    """Each of them is refused, permanently."""
    SUSPECTED = "suspected"
    """At least one of them is refused."""
    TARGET_UNAVAILABLE = "away"
    """None of them: their target is unavailable for now."""


class WriteRefused(NamedTuple):
    """A write was aborted because of the named messages. The others can be written."""

    reason: str
    offsets: frozenset[int]
    cause: Cause


class DeletePrefix(NamedTuple):
    """Delete the records before this offset. Response: None."""

    to: int


Ask: TypeAlias = ClaimSlot | ReleaseSlot | ReadLogStart | FindLogEnd | ReadRecords | WriteBatch | DeletePrefix
Answer: TypeAlias = "LogStart | RecordsRead | int | WriteRefused | None"


@dataclass(slots=True)
class UndeliveredMessage:
    """A message whose delivery failed."""

    tries: int = 0
    again_ms: int = 0
    error: str = ""
    is_alone: bool = False
    """Tried alone, because the failing message is not known."""


@dataclass(slots=True)
class SkippedRange:
    """Messages that were skipped: the records from `offset` up to `end` that did not belong here at `at_ms`. Reading
    them again finds the same ones.
    """

    offset: int
    end: int
    at_ms: int


@dataclass(slots=True)
class OwnedSlot:
    """One slot in the hands of its owner. A fenced owner drops it and creates a new one."""

    wheel: Wheel
    partition: int
    state: SlotState = SlotState.UNKNOWN
    start: int = 0
    next_offset: int = 0
    waiting: dict[int, ScheduledMessage] = field(default_factory=dict)
    """Waiting messages by offset."""
    _settled_ms: int = 0
    is_behind: bool = False
    """The last tick ended with due messages: run the next one at once."""
    unreadable: int = 0
    delivered: int = 0
    _due: list[int] = field(default_factory=list)
    """A heap of due time and offset in one number: half the memory of pairs."""
    _by_id: dict[str, int | set[int]] = field(default_factory=dict)
    """Schedule id → the offset, or several offsets. Only for ids that senders gave."""
    _cancels: dict[str, Cancel] = field(default_factory=dict)
    _dropped: dict[int, int] = field(default_factory=dict)
    """Offset of a copy that was cancelled before it was moved here → offset of its cancel, which is smaller."""
    _troubles: dict[int, UndeliveredMessage] = field(default_factory=dict)
    """Messages whose delivery failed."""
    _fresh: list[int] = field(default_factory=list)
    """Messages that may belong to another slot."""
    _moves_again_ms: int = 0
    _reading: tuple[int, int] | None = None
    """The end up to which the slot is read, and the time before that end was requested."""
    _now_ms: int | None = None
    """The time of the tick; None while everything is taken in."""
    _passing: SkippedRange | None = None
    """The range that is being skipped."""
    _again: SkippedRange | None = None
    """The range that is being read again. It lies before the skipped one."""
    _gone: list[tuple[int, int]] = field(default_factory=list)
    """Offsets of both ranges that are done."""

    @property
    def is_open(self) -> bool:
        """Return whether it is claimed, and read at each tick."""
        return self.state is SlotState.OPEN

    def tick(self, now_ms: int) -> Procedure[Ask, Any, None]:
        """Run one tick: read, deliver, move, empty."""
        self._now_ms = now_ms
        settled_ms = self.wheel.settled_ms(self.partition, now_ms)
        if self.state is SlotState.CLOSED and settled_ms != self._settled_ms:
            self.state = SlotState.UNKNOWN  # a whole window passed: the process was suspended
        if self.state is SlotState.UNKNOWN:
            seen: LogStart = yield ReadLogStart()
            self.state, self._settled_ms = SlotState.CLOSED, settled_ms
            if seen.first_ms is not None and seen.first_ms < settled_ms:
                yield from self._open()
        if self.state is SlotState.CLOSED:
            if self.wheel.closes_ms(self.partition, now_ms) is None:
                return
            yield from self._open()
        due_ms = yield from self._catch_up(now_ms)
        if due_ms is None:
            return  # a cancel may be in what is not read yet
        yield from self._read_again()
        yield from self._write(due_ms, now_ms)
        if self.wheel.closes_ms(self.partition, now_ms) is None:
            yield from self._empty(now_ms)

    @property
    def next_due_ms(self) -> int | None:
        """Return when the next message that was read is due; None without one."""
        while self._due and self._due[0] & _OFFSET not in self.waiting:
            heapq.heappop(self._due)
        return self._due[0] >> _OFFSET_BITS if self._due else None

    # What tick does

    def _open(self) -> Procedure[Ask, Any, None]:
        yield ClaimSlot()
        seen: LogStart = yield ReadLogStart()
        self.start = self.next_offset = seen.start
        self.state = SlotState.OPEN

    def _catch_up(self, now_ms: int) -> Procedure[Ask, Any, int | None]:
        """Read towards the last known end, and find a new one when it is reached. Returns the time up to which all
        cancels are known, so that messages due by then can be delivered; None while they are unknown.
        """
        if self._reading is None:
            found: int = yield FindLogEnd()
            self._reading = (found, now_ms)
        end, found_ms = self._reading
        for _ in range(MAX_READS_PER_TICK):
            if self.next_offset >= end:
                break
            chunk: RecordsRead = yield ReadRecords(self.next_offset)
            if chunk.next_offset <= self.next_offset:
                self._reading = None
                return None
            for record in chunk.records:
                self.take_in(record)
            self.next_offset = chunk.next_offset
        self.is_behind = self.next_offset < end
        if self.is_behind:
            return None
        self._reading = None
        return min(found_ms, now_ms)

    def _read_again(self) -> Procedure[Ask, Any, None]:
        """Read skipped messages again if there is room."""
        if self._again is None:
            if self._passing is None or self._fresh:
                return
            self._again, self._passing = self._passing, None
            self._again.end = self.next_offset
            self._due = [message.due_ms << _OFFSET_BITS | offset for offset, message in self.waiting.items()]
            heapq.heapify(self._due)  # without those that have left
        again = self._again
        gone = sorted(self._gone)
        for _ in range(MAX_READS_PER_TICK):
            if again.offset >= again.end:
                self._again = None
                if self._passing is None:
                    self._gone.clear()
                return
            if len(self._fresh) >= MAX_HELD:
                return
            chunk: RecordsRead = yield ReadRecords(again.offset)
            if chunk.next_offset <= again.offset:
                return
            for record in chunk.records:
                if record.offset < again.end:
                    self._take_in_again(record, again.at_ms, gone)
            again.offset = chunk.next_offset

    def _write(self, due_ms: int, now_ms: int) -> Procedure[Ask, Any, None]:
        """Deliver messages that were due at `due_ms`, and move those that belong elsewhere now."""
        self.is_behind = False
        written = 0
        for _ in range(_MAX_WRITES):
            if written >= _MAX_WRITTEN:
                break
            write = self._next_write(due_ms, now_ms)
            if write is None:
                has_more = self._again is not None or self._passing is not None
                self.is_behind = has_more and now_ms >= self._moves_again_ms
                return
            refused: WriteRefused | None = yield write
            if refused is None:
                offsets = write.offsets
                for offset in offsets:
                    self._forget(offset)
                written += len(offsets)
                self.delivered += len(write.deliver)
            else:
                self._failed(write, refused, now_ms)
        self.is_behind = True

    def _empty(self, now_ms: int) -> Procedure[Ask, Any, None]:
        """Empty the slot after its window: delete the finished prefix, and close when no late or foreign message
        remains.
        """
        unread = [passed.offset for passed in (self._again, self._passing) if passed is not None]
        to = self._deletable_end(now_ms, unread)
        if to > self.start:
            yield DeletePrefix(to)
            self.start = to
            self._dropped = {copy: cancel for copy, cancel in self._dropped.items() if copy >= to}
        is_undecided = self.is_behind or len(unread) > 0 or any(offset in self.waiting for offset in self._fresh)
        if not is_undecided and all(message.due_ms > now_ms for message in self.waiting.values()):
            yield ReleaseSlot()
            self._clear()
            self.state, self._settled_ms = SlotState.CLOSED, self.wheel.settled_ms(self.partition, now_ms)

    def _deletable_end(self, now_ms: int, unread: Sequence[int]) -> int:
        """Return the end of the prefix that can be deleted. `unread` are the offsets of skipped messages."""
        kept = [c.offset for c in self._cancels.values() if unread or c.at_ms > now_ms - KEEP_CANCELS_MS]
        to = min([*self.waiting, *kept, *unread], default=self.next_offset)
        # A copy that stays keeps its cancel. From the last cancel to the first: one that stays may keep others.
        for copy, cancel in sorted(self._dropped.items(), key=lambda each: -each[1]):
            if cancel < to <= copy:
                to = cancel
        return to

    # What is read

    def take_in(self, record: Record[Any]) -> None:
        """Apply the next record of the log."""
        found = parse(record)
        if found.__class__ is ScheduledMessage:
            assert isinstance(found, ScheduledMessage)
            if self._is_passed_over(found):
                return
            id = found.given_id
            if id is not None:
                cancel = self._cancels.get(id)
                if cancel is not None and found.rolls > 0 and cancel.at_ms >= found.at_ms - REUSED_MS:
                    self._dropped[found.offset] = cancel.offset
                    return
                self._index(id, found.offset)
            self._hold(found)
        elif isinstance(found, Cancel):
            self._cancels[found.id] = found
            for offset in self._with_id(found.id):
                self._forget(offset)
        elif isinstance(found, Done):
            if self._again is not None or self._passing is not None:
                self._gone += found.ranges
            for offset in self._waiting_in(found.ranges):
                self._forget(offset)
        else:
            self.unreadable += 1

    def _waiting_in(self, ranges: list[tuple[int, int]]) -> list[int]:
        """Return the offsets in sorted ranges at which messages wait. Ranges come from outside, in any size and
        number.
        """
        if sum(end - start for start, end in ranges) <= len(self.waiting):
            return [offset for start, end in ranges for offset in range(start, end) if offset in self.waiting]
        found = []
        for offset in self.waiting:
            before = bisect_right(ranges, (offset, _OFFSET))
            if before > 0 and offset < ranges[before - 1][1]:
                found.append(offset)
        return found

    def _hold(self, message: ScheduledMessage) -> None:
        self.waiting[message.offset] = message
        heapq.heappush(self._due, message.due_ms << _OFFSET_BITS | message.offset)
        self._fresh.append(message.offset)

    def _is_passed_over(self, message: ScheduledMessage) -> bool:
        if self._passing is None:
            if len(self._fresh) < MAX_HELD or self._now_ms is None or self._stays(message, self._now_ms):
                return False
            self._passing = SkippedRange(message.offset, message.offset, self._now_ms)
            return True
        return not self._stays(message, self._passing.at_ms)

    def _stays(self, message: ScheduledMessage, now_ms: int) -> bool:
        return message.due_ms <= now_ms or self.wheel.belongs(self.partition, message.due_ms, now_ms)

    def _take_in_again(self, record: Record[Any], at_ms: int, gone: list[tuple[int, int]]) -> None:
        """Apply a record that was read before. `gone` is sorted."""
        found = parse(record)
        if not isinstance(found, ScheduledMessage) or self._stays(found, at_ms):
            return
        before = bisect_right(gone, (found.offset, _OFFSET))
        if before > 0 and found.offset < gone[before - 1][1]:
            return
        cancel = self._cancels.get(found.id) if self._cancels else None
        if cancel is not None:
            is_copy_of_cancelled = found.rolls > 0 and cancel.at_ms >= found.at_ms - REUSED_MS
            if cancel.offset > found.offset:
                return
            if is_copy_of_cancelled:
                self._dropped[found.offset] = cancel.offset
                return
        if found.given_id is not None:
            self._index(found.given_id, found.offset)
        self._hold(found)

    def _next_write(self, due_ms: int, now_ms: int) -> WriteBatch | None:
        write = self._next_of_troubles(now_ms) if self._troubles else None
        if write is not None:
            return write
        deliver: list[ScheduledMessage] = []
        move: list[tuple[ScheduledMessage, int]] = []
        size_bytes = 0
        while self._due and len(deliver) < MAX_MESSAGES_PER_WRITE and size_bytes < MAX_BYTES_PER_WRITE:
            offset = self._due[0] & _OFFSET
            found = self.waiting.get(offset)
            if found is not None and found.due_ms > due_ms:
                break
            heapq.heappop(self._due)
            if found is not None and offset not in self._troubles:
                deliver.append(found)
                size_bytes += len(found.value or b"")
        may_move = now_ms >= self._moves_again_ms
        while (
            may_move
            and self._fresh
            and len(deliver) + len(move) < MAX_MESSAGES_PER_WRITE
            and size_bytes < MAX_BYTES_PER_WRITE
        ):
            message_here = self.waiting.get(self._fresh.pop())
            if message_here is None or message_here.due_ms <= now_ms:
                continue
            if not self.wheel.belongs(self.partition, message_here.due_ms, now_ms):
                move.append((message_here, self.wheel.slot_for(message_here.due_ms, now_ms)))
                size_bytes += len(message_here.value or b"")
        return WriteBatch(deliver=deliver, move=move) if deliver or move else None

    def _next_of_troubles(self, now_ms: int) -> WriteBatch | None:
        """Return the messages to give up, or one to try alone, or those that failed together."""
        ready = [offset for offset, trouble in self._troubles.items() if trouble.again_ms <= now_ms][
            :MAX_MESSAGES_PER_WRITE
        ]
        if not ready:
            return None
        over = [offset for offset in ready if self._troubles[offset].tries >= MAX_TRIES]
        if over:
            return WriteBatch(give_up=[(self.waiting[offset], self._troubles[offset].error) for offset in over])
        together = [self.waiting[offset] for offset in ready if not self._troubles[offset].is_alone]
        return WriteBatch(deliver=together or [self.waiting[ready[0]]])

    def _failed(self, write: WriteBatch, refused: WriteRefused, now_ms: int) -> None:
        """Handle an aborted write: retry the messages to blame later, or one by one to find the cause, and the others
        at once.
        """
        is_alone = len(write.offsets) == 1
        self._fresh += [message.offset for message, _ in write.move]
        if any(message.offset in refused.offsets for message, _ in write.move):
            self._moves_again_ms = now_ms + _AWAY_MS  # another slot cannot be written to; what is due need not wait
        for message in write.deliver:
            offset = message.offset
            trouble = self._troubles.get(offset)
            if offset not in refused.offsets:
                if trouble is None:
                    heapq.heappush(self._due, message.due_ms << _OFFSET_BITS | offset)
                continue
            if trouble is None:
                trouble = self._troubles[offset] = UndeliveredMessage()
            trouble.error = refused.reason
            if refused.cause is Cause.TARGET_UNAVAILABLE:
                trouble.again_ms = now_ms + _AWAY_MS
            elif is_alone or refused.cause is Cause.CERTAIN:
                trouble.tries += 1
                trouble.again_ms = now_ms + _BACKOFF_MS * 2**trouble.tries
            else:
                trouble.is_alone = True
        for message, reason in write.give_up:
            self._troubles[message.offset] = UndeliveredMessage(MAX_TRIES, now_ms + _BACKOFF_MS * 2**MAX_TRIES, reason)

    def _index(self, id: str, offset: int) -> None:
        same = self._by_id.get(id)
        if same is None:
            self._by_id[id] = offset
        elif isinstance(same, int):
            self._by_id[id] = {same, offset}
        else:
            same.add(offset)

    def _with_id(self, id: str) -> list[int]:
        """Return the messages that a cancel of this id covers."""
        same = self._by_id.get(id)
        if same is not None:
            return [same] if isinstance(same, int) else list(same)
        position = id.rpartition("@")[2]  # one without an id goes by where it was written
        offset = int(position) if position.isdecimal() and len(position) < _POSITION_DIGITS else -1
        message = self.waiting.get(offset)
        return [offset] if message is not None and message.id == id else []

    def _forget(self, offset: int) -> None:
        message = self.waiting.pop(offset, None)
        if message is None:
            return
        if self._troubles:
            self._troubles.pop(offset, None)
        id = message.given_id
        if id is not None:
            same = self._by_id.get(id)
            if isinstance(same, set):
                same.discard(offset)
            if same == offset or not same:
                self._by_id.pop(id, None)

    def _clear(self) -> None:
        self.waiting.clear()
        self._due.clear()
        self._by_id.clear()
        self._cancels.clear()
        self._dropped.clear()
        self._troubles.clear()
        self._fresh.clear()
        self._gone.clear()
        self._again = self._passing = self._reading = None
