"""A share partition against a model that has one entry per record: whatever happens, in whatever order, they agree."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_embedded.share.events import (
    Acknowledge,
    AcknowledgedRange,
    Acquire,
    Acquired,
    Answer,
    LogBatch,
    LogStartMoved,
    Persist,
    Persisted,
    PersistedState,
    Release,
    Tick,
)
from broker_embedded.share.partition import SharePartition, ShareSettings
from broker_embedded.share.persister import merged
from broker_embedded.share.runs import Run, Standing
from broker_embedded.share.states import AFTER_ACKNOWLEDGE, FINAL, TRANSITIONS, AcknowledgeType, RecordState
from ottla_wire.protocol import ErrorCode

LIMIT = 3
LOCK_MS = 100
MEMBERS = st.sampled_from(["a", "b"])
KINDS = st.sampled_from(list(AcknowledgeType))


@dataclass
class Entry:
    """One record of the model."""

    state: RecordState = RecordState.AVAILABLE
    count: int = 0
    member: str = ""
    deadline: int = -1
    write: int = 0
    before: Any = None


def is_free(entry: Entry) -> bool:
    return entry.state is RecordState.AVAILABLE and not entry.write


class CheckedPartition(SharePartition):
    """Every change of state is one that the table allows, or the return of what was before a failed write."""

    def _change(self, run: Run, standing: Standing) -> None:
        before, after = run.standing.state, standing.state
        is_rollback = getattr(self, "rolls_back", False)
        assert is_rollback or after in TRANSITIONS[before], (before, after)
        super()._change(run, standing)


class SharedRecords(RuleBasedStateMachine):
    @initialize(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6), max_locks=st.sampled_from([6, 100]))
    def begin(self, sizes: list[int], max_locks: int) -> None:
        self.now = 1_000
        self.settings = ShareSettings(lock_ms=LOCK_MS, delivery_limit=LIMIT, max_locks=max_locks)
        self.partition = CheckedPartition(PersistedState(0, 0), self.settings)
        self.log: list[LogBatch] = []
        end = 0
        for size in sizes:
            self.log.append(LogBatch(end, end + size - 1, is_deliverable=size != 4))
            end += size + (size == 5)  # a gap behind some batches
        self.entries: dict[int, Entry] = {}
        self.start = 0
        self.end = 0
        self.log_start = 0
        self.writes: list[Persist] = []
        self.stored = PersistedState(0, 0)
        self.tickets: dict[object, int] = {}

    # --- what happens

    @rule(member=MEMBERS, max_records=st.integers(1, 8), is_strict=st.booleans(), read=st.integers(1, 6))
    def acquire(self, member: str, max_records: int, is_strict: bool, read: int) -> None:
        self.expire()
        offset = self.partition.next_offset()
        assert offset == next((each for each in sorted(self.entries) if is_free(self.entries[each])), self.end)
        batches = tuple(each for each in self.log if each.last >= offset)[:read]
        event = Acquire(member_id=member, offset=offset, batches=batches, max_records=max_records, is_strict=is_strict)
        acquired = self.step(event)
        taken = [offset for each in acquired for offset in range(each.first, each.last + 1)]
        assert len(set(taken)) == len(taken)
        if is_strict:
            assert len(taken) <= max_records
        for each in acquired:
            for offset in range(each.first, each.last + 1):
                entry = self.entries.setdefault(offset, Entry())
                assert is_free(entry)
                entry.state, entry.count = RecordState.ACQUIRED, entry.count + 1
                entry.member, entry.deadline = member, self.now + LOCK_MS
                assert entry.count == each.delivery_count
        self.learn_archived()

    def learn_archived(self) -> None:
        """Offsets without a record are archived as the partition meets them: nothing else may be."""
        deliverable = {
            offset for each in self.log if each.is_deliverable for offset in range(each.first, each.last + 1)
        }
        for run in self.partition.runs:
            for offset in range(run.first, run.last + 1):
                entry = self.entries.setdefault(offset, Entry())
                if run.standing.state is RecordState.ARCHIVED and entry.state is RecordState.AVAILABLE:
                    assert offset not in deliverable
                    entry.state = RecordState.ARCHIVED
        for offset in range(self.end, self.partition.start_offset):
            assert offset not in deliverable or offset in self.entries
            entry = self.entries.setdefault(offset, Entry(RecordState.ARCHIVED))
            if offset not in deliverable:
                entry.state = RecordState.ARCHIVED
        for offset in range(self.start, self.partition.start_offset):
            if offset not in deliverable and self.entries[offset].state is RecordState.AVAILABLE:
                self.entries[offset].state = RecordState.ARCHIVED
        self.end = max(self.end, self.partition.end_offset)
        self.advance()

    @rule(
        member=MEMBERS,
        cuts=st.lists(st.integers(0, 30), min_size=2, max_size=6, unique=True),
        kinds=st.lists(KINDS, min_size=3, max_size=3),
    )
    def acknowledge(self, member: str, cuts: list[int], kinds: list[AcknowledgeType]) -> None:
        self.expire()
        cuts = sorted(cuts)
        pairs = list(zip(cuts[::2], cuts[1::2], strict=False))
        ranges = tuple(AcknowledgedRange(a, b - 1, (kind,)) for (a, b), kind in zip(pairs, kinds, strict=False))
        self.settle(member, ranges)

    @precondition(lambda self: any(entry.state is RecordState.ACQUIRED for entry in self.entries.values()))
    @rule(data=st.data())
    def acknowledge_what_is_held(self, data: Any) -> None:
        self.expire()
        held = [o for o, entry in self.entries.items() if entry.state is RecordState.ACQUIRED and not entry.write]
        if not held:
            return
        first = data.draw(st.sampled_from(held))
        member = self.entries[first].member
        last = first
        while last + 1 in held and self.entries[last + 1].member == member and data.draw(st.booleans()):
            last += 1
        size = last - first + 1
        types = data.draw(st.lists(KINDS, min_size=size, max_size=size))
        self.settle(member, (AcknowledgedRange(first, last, tuple(types)),))

    def settle(self, member: str, ranges: tuple[AcknowledgedRange, ...]) -> None:
        wanted = {
            offset: each.types[0] if len(each.types) == 1 else each.types[offset - each.first]
            for each in ranges
            for offset in range(max(each.first, self.start), each.last + 1)
        }
        is_allowed = all(
            offset in self.entries
            and self.entries[offset].state is RecordState.ACQUIRED
            and not self.entries[offset].write
            and self.entries[offset].member == member
            for offset in wanted
        )
        ticket = object()
        before = len(self.writes)
        self.answers: list[Answer] = []
        self.step(Acknowledge(ticket=ticket, member_id=member, ranges=ranges))
        if not is_allowed:
            assert [each.error for each in self.answers] == [ErrorCode.INVALID_RECORD_STATE]
            assert len(self.writes) == before
            return
        for offset, kind in wanted.items():
            entry = self.entries[offset]
            if kind is AcknowledgeType.RENEW:
                entry.deadline = self.now + LOCK_MS
                continue
            entry.before = replace(entry)
            entry.state = AFTER_ACKNOWLEDGE[kind]
            if entry.state is RecordState.AVAILABLE and entry.count >= LIMIT:
                entry.state = RecordState.ARCHIVED
            entry.member, entry.deadline = "", -1
            entry.write = self.writes[-1].write_id
        if all(kind is AcknowledgeType.RENEW for kind in wanted.values()):
            assert [each.error for each in self.answers] == [ErrorCode.NONE]
        else:
            assert not self.answers
            self.tickets[ticket] = self.writes[-1].write_id

    @precondition(lambda self: self.writes)
    @rule(succeeds=st.booleans())
    def persist(self, succeeds: bool) -> None:
        write = self.writes.pop(0)
        self.expire()
        self.answers = []
        if succeeds:
            self.stored = merged(self.stored, write.start_offset, write.batches)
        self.partition.rolls_back = not succeeds  # type: ignore[attr-defined]
        error = ErrorCode.NONE if succeeds else ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.step(Persisted(write_id=write.write_id, error=error))
        self.partition.rolls_back = False  # type: ignore[attr-defined]
        for entry in self.entries.values():
            if entry.write == write.write_id:
                if not succeeds:
                    entry.state, entry.member, entry.deadline = (
                        entry.before.state,
                        entry.before.member,
                        entry.before.deadline,
                    )
                entry.write, entry.before = 0, None
        self.expire()
        self.advance()
        waited = [ticket for ticket, write_id in self.tickets.items() if write_id == write.write_id]
        assert [each.ticket for each in self.answers] == waited
        assert all(each.error is error for each in self.answers)

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        self.expire()
        self.step(Release(member_id=member))
        for entry in self.entries.values():
            if entry.member == member and not entry.write:
                self.give_back(entry)
        self.advance()

    @rule(ms=st.integers(1, LOCK_MS))
    def wait(self, ms: int) -> None:
        self.now += ms
        self.step(Tick())
        self.expire()
        self.advance()

    @rule(records=st.integers(1, 4))
    def log_start_moves(self, records: int) -> None:
        self.expire()
        self.log_start += records
        self.step(LogStartMoved(offset=self.log_start))
        self.log = [each for each in self.log if each.last >= self.log_start]
        if self.log_start > self.start:
            self.start = self.log_start
            self.end = max(self.end, self.start)
            self.entries = {offset: entry for offset, entry in self.entries.items() if offset >= self.start}
        self.advance()

    # --- the model

    def step(self, event: Any) -> Any:
        acquired: Any = ()
        for effect in self.partition.step(event, self.now):
            match effect:
                case Acquired(ranges=ranges):
                    acquired = ranges
                case Persist():
                    self.writes.append(effect)
                case Answer():
                    self.answers.append(effect)
        return acquired

    def give_back(self, entry: Entry) -> None:
        entry.state = RecordState.AVAILABLE if entry.count < LIMIT else RecordState.ARCHIVED
        entry.member, entry.deadline = "", -1

    def expire(self) -> None:
        for entry in self.entries.values():
            is_over = entry.state is RecordState.ACQUIRED and entry.deadline <= self.now
            if is_over and not entry.write:
                self.give_back(entry)

    def advance(self) -> None:
        while self.start < self.end:
            entry = self.entries.get(self.start)
            if entry is None or entry.state not in FINAL or entry.write:
                break
            del self.entries[self.start]
            self.start += 1

    # --- what always holds

    @invariant()
    def both_agree(self) -> None:
        if not hasattr(self, "partition"):
            return
        self.step(Tick())
        self.expire()
        self.advance()
        found = {
            offset: (run.standing.state, run.standing.delivery_count, run.standing.member_id, run.write_id)
            for run in self.partition.runs
            for offset in range(run.first, run.last + 1)
        }
        wanted = {
            offset: (entry.state, entry.count, entry.member, entry.write) for offset, entry in self.entries.items()
        }
        assert found == wanted
        assert (self.partition.start_offset, self.partition.end_offset) == (self.start, self.end)

    @invariant()
    def runs_are_contiguous_and_final_records_are_counted(self) -> None:
        if not hasattr(self, "partition"):
            return
        expected = self.partition.start_offset
        for run in self.partition.runs:
            assert run.first == expected
            assert run.last >= run.first
            expected = run.last + 1
        assert expected == self.partition.end_offset
        assert self.partition.complete_count == sum(
            run.size for run in self.partition.runs if run.standing.state in FINAL
        )

    @invariant()
    def no_record_is_delivered_more_often_than_the_limit(self) -> None:
        if hasattr(self, "partition"):
            assert all(run.standing.delivery_count <= LIMIT for run in self.partition.runs)

    @invariant()
    def what_is_written_is_loaded_as_it_was(self) -> None:
        """A new leader knows every settled record whose write succeeded, and leases nothing that is settled."""
        if not hasattr(self, "partition"):
            return
        loaded = SharePartition(self.stored, self.settings)
        settled = {
            offset
            for batch in self.stored.batches
            if batch.state in FINAL
            for offset in range(batch.first, batch.last + 1)
        }
        for run in loaded.runs:
            for offset in range(run.first, run.last + 1):
                assert (run.standing.state in FINAL) == (offset in settled)


SharedRecords.TestCase.settings = settings(stateful_step_count=30)
TestSharedRecords = SharedRecords.TestCase
