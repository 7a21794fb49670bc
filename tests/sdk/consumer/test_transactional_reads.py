"""Records in transactions, in any order of taking, joining, committing and aborting: each counts once, in order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.consumer.model.events import RunFinished
from ottla.consumer.model.run import Run
from ottla.consumer.pulled.pull import PullBook
from ottla.consumer.pulled.transactional_reads import TransactionalReads
from ottla.errors import LifecycleError, RetriableError
from ottla.records import Record, TopicPartition

NAME = TopicPartition("orders", 0)
RECORDS = 30

Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["take", "join", "join the last", "commit", "abort", "forget"]), st.integers(1, 9)),
    max_size=60,
)


class World:
    """One partition, its consumer, and the group's committed offset."""

    def __init__(self, quantum: int) -> None:
        self.quantum = quantum
        self.buffer = [Record("orders", 0, offset, 0, None, b"v", [], None, b"v") for offset in range(RECORDS)]
        self.book = PullBook()
        self.reads = TransactionalReads(self.book)
        self.opened: Any = None
        self.taken: list[Record[Any]] = []
        """What the caller has and has named to no transaction."""
        self.pending_offset: int | None = None
        self.pending: list[int] = []
        self.committed = 0
        self.outputs: list[int] = []

    def take(self, count: int) -> None:
        while count:
            if self.opened is None:
                records, self.buffer = self.buffer[: self.quantum], self.buffer[self.quantum :]
                if not records:
                    return
                run = Run(topic_partition=NAME, epoch=1, route="r", records=records, attempt=1, started_ms=0)
                self.opened = self.book.open(run)
            if self.opened.handed_out == len(self.opened.run.records):
                return  # the next run comes when this one is over
            self.taken.append(self.opened.run.records[self.opened.handed_out])
            self.opened.handed_out += 1
            count -= 1

    def join(self, records: list[Record[Any]]) -> None:
        self.reads.begin(self)
        offsets, epochs = self.reads.join(records)
        assert epochs == {NAME: 1}
        assert self.pending_offset is None or offsets[NAME] >= self.pending_offset
        self.pending_offset = offsets[NAME]
        self.pending += [record.offset for record in records]
        self.taken = [record for record in self.taken if record not in records]

    def commit(self) -> None:
        if self.pending_offset is not None:
            assert self.pending_offset > self.committed, "the group never goes back"
            self.committed = self.pending_offset
            self.outputs += self.pending
        self._end(self.reads.committed())

    def abort(self) -> None:
        self.taken = []
        self._end(self.reads.aborted())

    def _end(self, finished: list[RunFinished]) -> None:
        self.pending, self.pending_offset = [], None
        for event in finished:
            self.opened = None
            self.buffer[:0] = event.result.untouched
            assert not event.result.failures


@given(steps=STEPS, quantum=st.integers(1, 8))
def test_what_is_committed_is_every_record_once_in_order(steps: list[Step], quantum: int) -> None:
    world = World(quantum)
    for what, count in steps:
        if what == "take":
            world.take(count)
        elif what == "join" and world.taken:
            world.join(world.taken[:count])
        elif what == "join the last" and world.taken:
            if len(world.taken) == 1:
                world.join(world.taken)
                continue
            with pytest.raises(LifecycleError, match="would be lost"):
                world.join(world.taken[-1:])
            world.abort()
        elif what == "commit":
            world.commit()
        elif what == "abort":
            stale = world.taken[:]
            world.abort()
            if stale:
                with pytest.raises(RetriableError, match="no longer belongs"):
                    world.join(stale)
                world.abort()
        elif what == "forget":
            world.abort()
        assert world.outputs == list(range(world.committed))
    while world.committed < RECORDS:
        world.abort()
        world.take(RECORDS)
        world.join(world.taken)
        world.commit()
    assert world.outputs == list(range(RECORDS))


def test_a_revoked_run_is_not_committed() -> None:
    world = World(4)
    world.take(2)
    world.opened.run.is_cancelled = True
    with pytest.raises(RetriableError, match="orders-0@0 no longer belongs to this consumer"):
        world.join(world.taken)
