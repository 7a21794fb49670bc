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

from collections.abc import Iterable, Sequence

from ottla_wire.facts import fact

from . import acknowledging, acquiring
from .deadlines import Deadlines
from .events import (
    Acknowledge,
    Acquire,
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
from .runs import NO_DEADLINE, NO_WRITE, Run, Runs, Standing, batch_of, standing
from .states import FINAL, RecordState

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


class SharePartition:
    """Runs of one group on one topic partition, in one leader epoch."""

    def __init__(self, persisted: PersistedState, settings: ShareSettings) -> None:
        """`persisted.start_offset` is never unknown: the caller has chosen where a new group begins."""
        self.settings = settings
        self.state_epoch = persisted.state_epoch
        self.steps = 0
        """Events so far: what watches from outside sees whether something may have changed."""
        self.runs = Runs(persisted.start_offset)
        self.complete_count = 0
        """Records in a final state from the start offset on."""
        self.deadlines = Deadlines()
        """When locks end; ranges whose records have moved on are skipped."""
        self.first_candidate = persisted.start_offset
        """Nothing below is available."""
        self._leased_runs = 0
        self._write_id = NO_WRITE
        self.waiting: dict[int, acknowledging.Waiting] = {}
        """The acknowledgements whose outcome is being written, by write."""
        self.effects: list[Effect] = []
        self._load(persisted.batches)

    def _load(self, batches: Sequence[StateBatch]) -> None:
        for batch in sorted(batches):
            first, last = max(batch.first, self.runs.end_offset), batch.last
            if last < first:
                continue
            if first > self.runs.end_offset:  # never settled: it is looked at again
                self.runs.append(first - 1, standing(_AVAILABLE, 0))
            run = self.runs.append(last, standing(batch.state, batch.delivery_count))
            self._count_final(run, 1)
            if batch.state is RecordState.ARCHIVING:  # its dead letter may be there: the leader before may have ended
                self.write_dead_letters(batch_of(run), ())
        self.advance()

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
        return self.deadlines.next_ms

    # --- events

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Handle an event. The effects are in the order in which they have to be carried out."""
        self.steps += 1
        self.expire(now_ms)
        match event:
            case Acquire():
                self.effects.append(acquiring.acquire(self, event, now_ms))
            case Acknowledge():
                acknowledging.acknowledge(self, event, now_ms)
            case Release(member_id=member_id):
                self._give_back(run for run in self.runs if run.standing.member_id == member_id)
            case Persisted():
                acknowledging.persisted(self, event, now_ms)
            case LogStartMoved(offset=offset):
                self._archive_before(offset)
            case DeadLettered(first=first, last=last):
                self._dead_lettered(first, last)
            case Tick():
                pass
        effects, self.effects = self.effects, []
        return effects

    # --- leasing and giving back

    def standing_after(self, before: Standing, state: RecordState) -> Standing:
        """Return the standing of an acquired record that becomes `state`; at the limit it is not available again."""
        if state is _AVAILABLE and before.delivery_count >= self.settings.delivery_limit:
            state = self.given_up()
        return standing(state, before.delivery_count)

    def given_up(self) -> RecordState:
        """Return the state of a record that is rejected, or was delivered for the last time."""
        return RecordState.ARCHIVING if self.settings.has_dead_letters else RecordState.ARCHIVED

    def lease(self, runs: Iterable[Run], member_id: str, now_ms: int, *, is_delivery: bool = True) -> None:
        """Lease whole runs to a member. A renewal is no delivery."""
        deadline_ms = now_ms + self.settings.lock_ms
        for run in runs:
            count = run.standing.delivery_count + is_delivery
            self.change(run, standing(_ACQUIRED, count, member_id))
            run.deadline_ms = deadline_ms
            self.deadlines.add(deadline_ms, run.first, run.last)
        self._compact()

    def expire(self, now_ms: int) -> None:
        """Give back what is leased beyond its deadline, all of it in one write."""
        deadlines = self.deadlines
        overdue: dict[int, Run] = {}
        while (next_ms := deadlines.next_ms) is not None and next_ms <= now_ms:
            deadline_ms, first, last = deadlines.take()
            for run in self.runs.overlapping(first, last):
                if run.deadline_ms == deadline_ms and not run.write_id:
                    overdue[run.first] = run
        if overdue:
            self._give_back(overdue[first] for first in sorted(overdue))

    def _give_back(self, runs: Iterable[Run]) -> None:
        """Make leased runs available again, or archive them at the limit. It counts before it is written."""
        changed: list[StateBatch] = []
        for run in list(runs):
            if run.standing.state is not _ACQUIRED or run.write_id:
                continue
            self.change(run, self.standing_after(run.standing, _AVAILABLE))
            run.deadline_ms = NO_DEADLINE
            if run.standing.state is _AVAILABLE:
                self.first_candidate = min(self.first_candidate, run.first)
            append_batch(changed, batch_of(run))
        if not changed:
            return
        self.runs.join(changed[0].first, changed[-1].last)
        self.persist(changed)
        for batch in changed:
            if batch.state is RecordState.ARCHIVING:
                self.write_dead_letters(batch, ())
        self.advance()
        self.effects.append(MoreAvailable())

    def write_dead_letters(self, of: StateBatch, rejected: Sequence[tuple[int, int]]) -> None:
        was_rejected = any(first <= of.first <= last for first, last in rejected)
        is_below = of.delivery_count < self.settings.delivery_limit
        why = GivenUp.REJECTED if was_rejected or is_below else GivenUp.DELIVERIES_SPENT
        self.effects.append(WriteDeadLetters(first=of.first, last=of.last, delivery_count=of.delivery_count, why=why))

    def _dead_lettered(self, first: int, last: int) -> None:
        """Archive what is given up: its dead letters are written, or cannot be."""
        changed: list[StateBatch] = []
        if last >= self.start_offset:
            for run in self.runs.within(max(first, self.start_offset), min(last, self.end_offset - 1)):
                if run.standing.state is RecordState.ARCHIVING and not run.write_id:
                    self.change(run, standing(RecordState.ARCHIVED, run.standing.delivery_count))
                    append_batch(changed, batch_of(run))
            self.runs.join(max(first, self.start_offset), last)
        if not changed:
            return
        self.advance()
        self.persist(changed)
        self.effects.append(MoreAvailable())

    def _archive_before(self, offset: int) -> None:
        """Drop everything below `offset`. Leases and pending writes there end."""
        if offset <= self.start_offset:
            return
        for run in self.runs.drop_before(offset):
            self._count_final(run, -1)
            self._leased_runs -= run.standing.state is _ACQUIRED
        self.first_candidate = max(self.first_candidate, offset)
        self.advance()
        self.persist([])
        self.effects.append(MoreAvailable())

    # --- changes

    def archive(self, runs: Iterable[Run]) -> None:
        """Archive available runs: there is nothing to deliver at their offsets."""
        for run in runs:
            self.change(run, standing(RecordState.ARCHIVED, run.standing.delivery_count))

    def archive_new(self, last: int) -> None:
        """Extend the end offset over offsets with nothing to deliver."""
        self._count_final(self.runs.append(last, standing(RecordState.ARCHIVED, 0)), 1)

    def change(self, run: Run, to: Standing) -> None:
        self._count_final(run, -1)
        self._leased_runs += (to.state is _ACQUIRED) - (run.standing.state is _ACQUIRED)
        run.standing = to
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
        self.deadlines = Deadlines(
            (run.deadline_ms, run.first, run.last) for run in self.runs if run.standing.state is _ACQUIRED
        )

    @property
    def next_write_id(self) -> int:
        """Return the number of the next write."""
        return self._write_id + 1

    def persist(self, changed: Sequence[StateBatch]) -> None:
        """Have the changes written, with the number of the next write."""
        self._write_id += 1
        self.effects.append(
            Persist(
                write_id=self._write_id,
                start_offset=self.start_offset,
                batches=tuple(changed),
                complete_count=self.complete_count,
            )
        )
