"""One share partition: the state of every record between its start offset and its end offset.

    start offset     the first record that is not settled; everything below is
    end offset       one past the last record that was looked at
    in between       runs of records with one state each (`runs`, `states`)

Sans-IO: an event and the time go in, effects come out. A change that a member waits for is pending until the share
coordinator has it: its records cannot be acquired meanwhile, and a write that fails brings back what was. What time or
the end of a session does is written too, and counts at once.

Invariants, after each step:

    runs cover [start offset, end offset) without gap or overlap
    the record at the start offset is not settled
    a record has at most one holder; start offset and delivery counts never go back
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

from . import acquiring
from .events import (
    Acknowledge,
    Acquire,
    Acquired,
    Answer,
    DeadLettered,
    Effect,
    Event,
    GivenUp,
    LogStartMoved,
    MoreAvailable,
    Persist,
    Persisted,
    PersistedState,
    Release,
    StateBatch,
    Tick,
    WriteDeadLetters,
    append_batch,
)
from .runs import NO_WRITE, Run, Runs, Standing
from .states import AFTER_ACKNOWLEDGE, FINAL, AcknowledgeType, RecordState

_AVAILABLE, _ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
_SPARE_DEADLINES = 64


@fact
class ShareSettings:
    """The settings of a share group, as they are in force."""

    lock_ms: int = 30_000
    delivery_limit: int = 5
    max_locks: int = 2_000
    """Records between start and end offset, from which on nothing new is acquired."""
    has_dead_letters: bool = False
    """Whether what is given up is a dead letter, of a topic that the group names (KIP-1191)."""


class _Waiting(NamedTuple):
    """An acknowledgement whose outcome is being written."""

    ticket: object
    first: int
    last: int
    rejected: tuple[tuple[int, int], ...]
    """Ranges of what was rejected."""


class SharePartition:
    """Runs of one group on one topic partition, in one leader epoch."""

    def __init__(self, persisted: PersistedState, settings: ShareSettings) -> None:
        """`persisted.start_offset` is known: who loads a state without one has decided where the group begins."""
        self.settings = settings
        self.state_epoch = persisted.state_epoch
        self.steps = 0
        """Events so far: what watches from outside sees whether something may have changed."""
        self.runs = Runs(persisted.start_offset)
        self.complete_count = 0
        """Records in a final state from the start offset on."""
        self.deadlines: list[tuple[int, int, int]] = []
        """A heap of (deadline, first, last); entries whose records have moved on are skipped."""
        self.first_candidate = persisted.start_offset
        """Nothing below is available."""
        self._leased_runs = 0
        self._write_id = NO_WRITE
        self._waiting: dict[int, _Waiting] = {}
        """By write."""
        self._effects: list[Effect] = []
        self._load(persisted.batches)

    def _load(self, batches: Sequence[StateBatch]) -> None:
        for batch in sorted(batches):
            first, last = max(batch.first, self.runs.end_offset), batch.last
            if last < first:
                continue
            if first > self.runs.end_offset:  # never settled: it is looked at again
                self.runs.append(first - 1, Standing(_AVAILABLE, 0))
            run = self.runs.append(last, Standing(batch.state, batch.delivery_count))
            self._count_final(run, 1)
            if batch.state is RecordState.ARCHIVING:  # its dead letter may be there: the leader before may have ended
                self._write_dead_letters(_batch_of(run), ())
        self.advance()

    # --- questions

    @property
    def start_offset(self) -> int:
        return self.runs.start_offset

    @property
    def end_offset(self) -> int:
        return self.runs.end_offset

    @property
    def in_flight(self) -> int:
        """Return the number of records between start and end offset."""
        return self.runs.end_offset - self.runs.start_offset

    def next_offset(self) -> int:
        """Return where the next fetch begins: at the first available record, else at the end offset."""
        for run in self.runs.overlapping(self.first_candidate, self.runs.end_offset):
            if run.standing.state is _AVAILABLE and not run.write_id:
                self.first_candidate = max(run.first, self.first_candidate)
                return self.first_candidate
        self.first_candidate = self.runs.end_offset
        return self.runs.end_offset

    def can_acquire(self) -> bool:
        """Return whether a fetch may find something: an available record, or room for new ones."""
        return self.next_offset() < self.runs.end_offset or self.in_flight < self.settings.max_locks

    def next_deadline_ms(self) -> int | None:
        """Return when the next `Tick` is due; None while nothing is leased."""
        return self.deadlines[0][0] if self.deadlines else None

    # --- events

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Handle an event. The effects are in the order in which they have to be carried out."""
        self.steps += 1
        self._expire(now_ms)
        match event:
            case Acquire():
                ranges = acquiring.acquire(self, event, now_ms)
                self._effects.append(Acquired(ranges=tuple(ranges)))
            case Acknowledge():
                self._acknowledge(event, now_ms)
            case Release(member_id=member_id):
                self._give_back(run for run in self.runs if run.standing.member_id == member_id)
            case Persisted():
                self._persisted(event, now_ms)
            case LogStartMoved(offset=offset):
                self._archive_before(offset)
            case DeadLettered(first=first, last=last):
                self._dead_lettered(first, last)
            case Tick():
                pass
        effects, self._effects = self._effects, []
        return effects

    # --- acknowledging

    def _acknowledge(self, event: Acknowledge, now_ms: int) -> None:
        """Change all records of the request, or none."""
        wanted: list[tuple[int, int, AcknowledgeType]] = []
        for each in event.ranges:
            if each.last < self.start_offset:
                continue  # the log start has passed it
            wanted += _by_type(each.first, each.types, each.last, self.start_offset)
        for first, last, _ in wanted:
            problem = self._problem(event.member_id, first, last)
            if problem is not None:
                self._effects.append(Answer(ticket=event.ticket, error=ErrorCode.INVALID_RECORD_STATE, message=problem))
                return
        settled = [(first, last, kind) for first, last, kind in wanted if kind is not AcknowledgeType.RENEW]
        for first, last, kind in wanted:
            if kind is AcknowledgeType.RENEW:
                self.lease(self.runs.within(first, last), event.member_id, now_ms, is_delivery=False)
                self.runs.join(first, last)
        if not settled:
            self._effects.append(Answer(ticket=event.ticket))
            return
        self._write_id += 1
        changed: list[StateBatch] = []
        for first, last, kind in settled:
            for run in self.runs.within(first, last):
                before = run.standing
                state = AFTER_ACKNOWLEDGE[kind]
                if kind is AcknowledgeType.REJECT:
                    state = self._given_up()
                self._change(run, self._after(before, state))
                run.write_id, run.before = self._write_id, before
                append_batch(changed, _batch_of(run))
            self.runs.join(first, last)
        rejected = tuple((first, last) for first, last, kind in settled if kind is AcknowledgeType.REJECT)
        self._waiting[self._write_id] = _Waiting(event.ticket, settled[0][0], settled[-1][1], rejected)
        self._persist(self._write_id, changed)

    def _problem(self, member_id: str, first: int, last: int) -> str | None:
        if last >= self.end_offset:
            return f"offsets {first} to {last} were not all delivered: the end offset is {self.end_offset}"
        for run in self.runs.overlapping(first, last):
            standing = run.standing
            if standing.state is not _ACQUIRED or run.write_id:
                return f"offset {max(first, run.first)} is {standing.state.name.lower()}, not acquired"
            if standing.member_id != member_id:
                return f"offset {max(first, run.first)} is acquired by another member"
        return None

    def _after(self, before: Standing, state: RecordState) -> Standing:
        """Return the standing of an acquired record that becomes `state`; at the limit it is not available again."""
        if state is _AVAILABLE and before.delivery_count >= self.settings.delivery_limit:
            state = self._given_up()
        return Standing(state, before.delivery_count)

    def _given_up(self) -> RecordState:
        return RecordState.ARCHIVING if self.settings.has_dead_letters else RecordState.ARCHIVED

    def _persisted(self, event: Persisted, now_ms: int) -> None:
        waiting = self._waiting.pop(event.write_id, None)
        if waiting is None:
            return
        ticket, first, last, rejected = waiting
        is_available = False
        for run in [run for run in self.runs.overlapping(first, last) if run.write_id == event.write_id]:
            before = run.before
            run.write_id, run.before = NO_WRITE, None
            if event.error is not ErrorCode.NONE and before is not None:
                self._change(run, before)
                heapq.heappush(self.deadlines, (before.deadline_ms, run.first, run.last))
            elif run.standing.state is _AVAILABLE:
                self.first_candidate = min(self.first_candidate, run.first)
                is_available = True
            elif run.standing.state is RecordState.ARCHIVING:
                self._write_dead_letters(_batch_of(run), rejected)
        self.runs.join(first, last)
        self.advance()
        self._expire(now_ms)
        self._effects.append(Answer(ticket=ticket, error=event.error))
        if is_available or event.error is ErrorCode.NONE:
            self._effects.append(MoreAvailable())  # a start offset that moves makes room below the in-flight limit

    # --- leasing and giving back

    def lease(self, runs: Iterable[Run], member_id: str, now_ms: int, *, is_delivery: bool = True) -> None:
        """Lease whole runs to a member. A renewal is no delivery."""
        deadline_ms = now_ms + self.settings.lock_ms
        for run in runs:
            count = run.standing.delivery_count + is_delivery
            self._change(run, Standing(_ACQUIRED, count, member_id, deadline_ms))
            heapq.heappush(self.deadlines, (deadline_ms, run.first, run.last))
        self._compact()

    def _expire(self, now_ms: int) -> None:
        """Give back what is leased beyond its deadline, all of it in one write."""
        deadlines = self.deadlines
        overdue: dict[int, Run] = {}
        while deadlines and deadlines[0][0] <= now_ms:
            deadline_ms, first, last = heapq.heappop(deadlines)
            for run in self.runs.overlapping(first, last):
                if run.standing.deadline_ms == deadline_ms and not run.write_id:
                    overdue[run.first] = run
        if overdue:
            self._give_back(overdue[first] for first in sorted(overdue))

    def _give_back(self, runs: Iterable[Run]) -> None:
        """Make leased runs available again, or archive them at the limit. It counts before it is written."""
        changed: list[StateBatch] = []
        for run in list(runs):
            if run.standing.state is not _ACQUIRED or run.write_id:
                continue
            self._change(run, self._after(run.standing, _AVAILABLE))
            if run.standing.state is _AVAILABLE:
                self.first_candidate = min(self.first_candidate, run.first)
            append_batch(changed, _batch_of(run))
        if not changed:
            return
        self.runs.join(changed[0].first, changed[-1].last)
        self._write_id += 1
        self._persist(self._write_id, changed)
        for batch in changed:
            if batch.state is RecordState.ARCHIVING:
                self._write_dead_letters(batch, ())
        self.advance()
        self._effects.append(MoreAvailable())

    def _write_dead_letters(self, of: StateBatch, rejected: Sequence[tuple[int, int]]) -> None:
        was_rejected = any(first <= of.first <= last for first, last in rejected)
        is_below = of.delivery_count < self.settings.delivery_limit
        why = GivenUp.REJECTED if was_rejected or is_below else GivenUp.DELIVERIES_SPENT
        self._effects.append(WriteDeadLetters(first=of.first, last=of.last, delivery_count=of.delivery_count, why=why))

    def _dead_lettered(self, first: int, last: int) -> None:
        """Archive what is given up: its dead letters are written, or cannot be."""
        changed: list[StateBatch] = []
        if last >= self.start_offset:
            for run in self.runs.within(max(first, self.start_offset), min(last, self.end_offset - 1)):
                if run.standing.state is RecordState.ARCHIVING and not run.write_id:
                    self._change(run, Standing(RecordState.ARCHIVED, run.standing.delivery_count))
                    append_batch(changed, _batch_of(run))
            self.runs.join(max(first, self.start_offset), last)
        if not changed:
            return
        self.advance()
        self._write_id += 1
        self._persist(self._write_id, changed)
        self._effects.append(MoreAvailable())

    def _archive_before(self, offset: int) -> None:
        """Drop everything below `offset`. Leases and pending writes there end."""
        if offset <= self.start_offset:
            return
        for run in self.runs.drop_before(offset):
            self._count_final(run, -1)
            self._leased_runs -= run.standing.state is _ACQUIRED
        self.first_candidate = max(self.first_candidate, offset)
        self.advance()
        self._write_id += 1
        self._persist(self._write_id, [])
        self._effects.append(MoreAvailable())

    # --- changes

    def archive(self, runs: Iterable[Run]) -> None:
        """Archive available runs: there is nothing to deliver at their offsets."""
        for run in runs:
            self._change(run, Standing(RecordState.ARCHIVED, run.standing.delivery_count))

    def archive_new(self, last: int) -> None:
        """Extend the end offset over offsets with nothing to deliver."""
        self._count_final(self.runs.append(last, Standing(RecordState.ARCHIVED, 0)), 1)

    def _change(self, run: Run, standing: Standing) -> None:
        self._count_final(run, -1)
        self._leased_runs += (standing.state is _ACQUIRED) - (run.standing.state is _ACQUIRED)
        run.standing = standing
        self._count_final(run, 1)

    def _count_final(self, run: Run, sign: int) -> None:
        if run.standing.state in FINAL:
            self.complete_count += sign * run.size

    def advance(self) -> None:
        """Move the start offset past what is settled."""
        offset = self.start_offset
        for run in self.runs:
            if run.standing.state not in FINAL or run.write_id:
                break
            offset = run.last + 1
        if offset > self.start_offset:
            for run in self.runs.drop_before(offset):
                self._count_final(run, -1)
            self.first_candidate = max(self.first_candidate, offset)

    def _compact(self) -> None:
        """Drop deadlines of records that are no longer acquired, once they are the majority."""
        if len(self.deadlines) <= 2 * self._leased_runs + _SPARE_DEADLINES:
            return
        self.deadlines = [
            (run.standing.deadline_ms, run.first, run.last) for run in self.runs if run.standing.state is _ACQUIRED
        ]
        heapq.heapify(self.deadlines)

    def _persist(self, write_id: int, changed: Sequence[StateBatch]) -> None:
        self._effects.append(
            Persist(
                write_id=write_id,
                start_offset=self.start_offset,
                batches=tuple(changed),
                complete_count=self.complete_count,
            )
        )


def _batch_of(run: Run) -> StateBatch:
    return StateBatch(run.first, run.last, run.standing.state, run.standing.delivery_count)


def _by_type(
    first: int, types: Sequence[AcknowledgeType], last: int, start_offset: int
) -> list[tuple[int, int, AcknowledgeType]]:
    """Return the ranges of one type each, from the start offset on."""
    if len(types) == 1:
        return [(max(first, start_offset), last, types[0])]
    found: list[tuple[int, int, AcknowledgeType]] = []
    for offset, kind in enumerate(types, first):
        if offset < start_offset:
            continue
        if found and found[-1][2] is kind:
            found[-1] = (found[-1][0], offset, kind)
        else:
            found.append((offset, offset, kind))
    return found
