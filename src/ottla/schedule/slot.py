"""One slot of the wheel: what waits in it, what is due, what is cancelled, and when it may be emptied.

`tick(now_ms)` is a generator: it yields what it wants done (`Claim`, `Look`, `FindEnd`, `Read`, `Write`, `Delete`,
`Release`) and is sent the answers. The clock is `now_ms`, which is never ahead of the brokers'.

| state | entered | does |
|---|---|---|
| `UNKNOWN` | the slot was assigned | looks whether something was left over from an earlier window |
| `CLOSED` | nothing is to be done until its window | nothing |
| `OPEN` | shortly before its window, or something was left over | each tick: reads to the end of the log, |
| | | delivers what is due, moves what belongs elsewhere |

Why a cancel that was acknowledged before the due time is honoured: `FindEnd` is asked after `now_ms` was taken, so
every such cancel lies before the end that it finds, and it is read before anything is delivered.

Why nothing is delivered twice: deliveries and the `done` record of their offsets are one transaction. Who opens a slot
claims it first, which ends every transaction of an earlier owner, and reads it from its start.

Why nothing is lost: only a prefix is deleted, and it ends before the first message that waits.

A message may be moved to another slot while its cancel is written to all of them. The new slot therefore remembers
cancels, and drops a moved copy whose id was cancelled. It keeps the cancels in its log for as long as a move may take.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.records import Record
from ottla.schedule.headers import Cancel, Done, Waiting, parse
from ottla.schedule.wheel import Wheel

MOST_AT_ONCE: Final = 1_000
"""Messages per transaction. [M: a transaction costs 10 ms whether it has 1 or 1,000 records]"""

KEEP_CANCELS_MS: Final = 15 * 60_000
"""How long a cancel stays in its slot at the least: longer than the transaction that moves a message may stay open."""

REUSED_MS: Final = 5 * 60_000
"""How far brokers' clocks may differ. An id may be used again so long after its cancel."""

_MOST_WRITES: Final = 20
"""Transactions per tick of a slot: the others, and the group, wait meanwhile."""

MOST_TRIES: Final = 5
_BACKOFF_MS: Final = 1_000


class SlotState(Enum):
    """See the module."""

    UNKNOWN = "unknown"
    CLOSED = "closed"
    OPEN = "open"


class Claim(NamedTuple):
    """Become the only one who may write for this slot. Answered with None."""


class Release(NamedTuple):
    """The slot is closed: nothing will be written for it for a while. Answered with None."""


class Look(NamedTuple):
    """Where does the log begin? Answered with a `Seen`."""


class Seen(NamedTuple):
    """`first_ms` is the append time of the first record, or None where there is none."""

    start: int
    first_ms: int | None


class FindEnd(NamedTuple):
    """Where does the log end for a read_committed reader, at a moment after the question? Answered with an offset."""


class Read(NamedTuple):
    """Answered with a `Chunk` of the records from this offset on."""

    offset: int


class Chunk(NamedTuple):
    records: Sequence[Record[Any]]
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Deliver, move, and give up, in one transaction with the record that says so. Answered with None when it is
    committed, or with the reason why it was aborted."""

    deliver: Sequence[Waiting] = ()
    move: Sequence[tuple[Waiting, int]] = ()
    give_up: Sequence[tuple[Waiting, str]] = ()

    @property
    def offsets(self) -> list[int]:
        messages = [*self.deliver, *(message for message, _ in self.move), *(message for message, _ in self.give_up)]
        return [message.offset for message in messages]


class Delete(NamedTuple):
    """Delete what is before this offset. Answered with None."""

    to: int


Ask: TypeAlias = Claim | Release | Look | FindEnd | Read | Write | Delete
Answer: TypeAlias = "Seen | Chunk | int | str | None"


@dataclass(slots=True)
class Trouble:
    """A message that could not be delivered."""

    tries: int = 0
    again_ms: int = 0
    error: str = ""


@dataclass(slots=True)
class Slot:
    """One slot in the hands of its owner. An owner who is fenced drops it and makes a new one."""

    wheel: Wheel
    partition: int
    state: SlotState = SlotState.UNKNOWN
    start: int = 0
    next_offset: int = 0
    waiting: dict[int, Waiting] = field(default_factory=dict)
    """By offset."""
    _settled_ms: int = 0
    is_behind: bool = False
    """The last tick ended with messages that are due: the next one should not wait."""
    unreadable: int = 0
    delivered: int = 0
    _due: list[tuple[int, int]] = field(default_factory=list)
    _by_id: dict[str, set[int]] = field(default_factory=dict)
    _cancels: dict[str, Cancel] = field(default_factory=dict)
    _troubles: dict[int, Trouble] = field(default_factory=dict)
    """Messages whose delivery failed: each is delivered alone from then on."""
    _fresh: list[int] = field(default_factory=list)
    """Messages of which it was not decided yet whether they belong here."""

    def tick(self, now_ms: int) -> Generator[Ask, Any, None]:
        """Do what is to be done now."""
        settled_ms = self.wheel.settled_ms(self.partition, now_ms)
        if self.state is SlotState.CLOSED and settled_ms != self._settled_ms:
            self.state = SlotState.UNKNOWN  # a whole window passed: the process was suspended
        if self.state is SlotState.UNKNOWN:
            seen: Seen = yield Look()
            self.state, self._settled_ms = SlotState.CLOSED, settled_ms
            if seen.first_ms is not None and seen.first_ms < settled_ms:
                yield from self._open()
        if self.state is SlotState.CLOSED:
            if self.wheel.closes_ms(self.partition, now_ms) is None:
                return
            yield from self._open()
        is_whole = yield from self._catch_up()
        if not is_whole:
            return  # a cancel may be in what cannot be read yet
        yield from self._write(now_ms)
        if self.wheel.closes_ms(self.partition, now_ms) is None:
            yield from self._empty(now_ms)

    @property
    def next_due_ms(self) -> int | None:
        """When the next message is due, of those that are read; None when there is none."""
        while self._due and self._due[0][1] not in self.waiting:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    # What tick does

    def _open(self) -> Generator[Ask, Any, None]:
        yield Claim()
        seen: Seen = yield Look()
        self.start = self.next_offset = seen.start
        self.state = SlotState.OPEN

    def _catch_up(self) -> Generator[Ask, Any, bool]:
        """Read up to the end. Returns whether it was reached."""
        end: int = yield FindEnd()
        while self.next_offset < end:
            chunk: Chunk = yield Read(self.next_offset)
            if chunk.next_offset <= self.next_offset:
                return False
            for record in chunk.records:
                self.take_in(record)
            self.next_offset = chunk.next_offset
        return True

    def _write(self, now_ms: int) -> Generator[Ask, Any, None]:
        self.is_behind = False
        for _ in range(_MOST_WRITES):
            write = self._next_write(now_ms)
            if write is None:
                return
            error: str | None = yield write
            if error is None:
                for offset in write.offsets:
                    self._forget(offset)
                self.delivered += len(write.deliver)
            else:
                self._failed(write, error, now_ms)
                if write.move:
                    return  # with the next tick
        self.is_behind = True

    def _empty(self, now_ms: int) -> Generator[Ask, Any, None]:
        """The window is over. Delete what is done; close when nothing here is late."""
        to = min(self.waiting, default=self.next_offset)
        young = [cancel.offset for cancel in self._cancels.values() if cancel.at_ms > now_ms - KEEP_CANCELS_MS]
        to = min([to, *young])
        if to > self.start:
            yield Delete(to)
            self.start = to
        if all(message.due_ms > now_ms for message in self.waiting.values()):
            yield Release()
            self._clear()
            self.state, self._settled_ms = SlotState.CLOSED, self.wheel.settled_ms(self.partition, now_ms)

    # What is read

    def take_in(self, record: Record[Any]) -> None:
        """A record was read: the next one of the log."""
        found = parse(record)
        if isinstance(found, Waiting):
            cancel = self._cancels.get(found.id)
            is_cancelled = cancel is not None and found.rolls > 0 and cancel.at_ms >= found.at_ms - REUSED_MS
            if not is_cancelled:
                self.waiting[found.offset] = found
                self._by_id.setdefault(found.id, set()).add(found.offset)
                heapq.heappush(self._due, (found.due_ms, found.offset))
                self._fresh.append(found.offset)
        elif isinstance(found, Cancel):
            self._cancels[found.id] = found
            for offset in self._by_id.get(found.id, set()).copy():
                self._forget(offset)
        elif isinstance(found, Done):
            for start, end in found.ranges:
                for offset in range(start, end) if end - start <= len(self.waiting) else list(self.waiting):
                    if start <= offset < end:
                        self._forget(offset)
        else:
            self.unreadable += 1

    def _next_write(self, now_ms: int) -> Write | None:
        if any(trouble.again_ms <= now_ms for trouble in self._troubles.values()):
            offset = next(offset for offset, trouble in self._troubles.items() if trouble.again_ms <= now_ms)
            message, trouble = self.waiting[offset], self._troubles[offset]
            if trouble.tries >= MOST_TRIES:
                return Write(give_up=[(message, trouble.error)])
            return Write(deliver=[message])
        deliver: list[Waiting] = []
        move: list[tuple[Waiting, int]] = []
        while self._due and len(deliver) + len(move) < MOST_AT_ONCE:
            due_ms, offset = self._due[0]
            found = self.waiting.get(offset)
            if found is not None and due_ms > now_ms:
                break
            heapq.heappop(self._due)
            if found is not None and offset not in self._troubles:
                deliver.append(found)
        while self._fresh and len(deliver) + len(move) < MOST_AT_ONCE:
            message_here = self.waiting.get(self._fresh.pop())
            if message_here is None or message_here.due_ms <= now_ms:
                continue
            if not self.wheel.belongs(self.partition, message_here.due_ms, now_ms):
                move.append((message_here, self.wheel.slot_for(message_here.due_ms, now_ms)))
        return Write(deliver=deliver, move=move) if deliver or move else None

    def _failed(self, write: Write, error: str, now_ms: int) -> None:
        """Aborted: what was alone in it waits, the others are tried one by one, so that the one to blame is found."""
        is_alone = len(write.offsets) == 1
        self._fresh += [message.offset for message, _ in write.move]
        for message in write.deliver:
            trouble = self._troubles.setdefault(message.offset, Trouble())
            trouble.error = error
            if is_alone:
                trouble.tries += 1
                trouble.again_ms = now_ms + _BACKOFF_MS * 2**trouble.tries
        for message, reason in write.give_up:
            self._troubles[message.offset] = Trouble(MOST_TRIES, now_ms + _BACKOFF_MS * 2**MOST_TRIES, reason)

    def _forget(self, offset: int) -> None:
        message = self.waiting.pop(offset, None)
        self._troubles.pop(offset, None)
        if message is not None:
            same = self._by_id[message.id]
            same.discard(offset)
            if not same:
                del self._by_id[message.id]

    def _clear(self) -> None:
        self.waiting.clear()
        self._due.clear()
        self._by_id.clear()
        self._cancels.clear()
        self._troubles.clear()
        self._fresh.clear()
