"""What becomes of a run whatever fails at which point: decided without a database, with a model of one.

The model is a table of marks, one of results and one of offsets, which change at a commit. A crash ends the run at a
named point and loses what was open; then the records come again, to a new worker. In the end each message has exactly
one result, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.consumer.partitions.lanes import Ordering
from ottla.errors import StoreUnavailable
from ottla.failures.exceptions import ExceptionTable, Failure
from ottla.failures.outcomes import Retry
from ottla.once.claims import ClaimRuns
from ottla.once.steps import (
    BeginTransaction,
    CallHandler,
    ClaimIds,
    CommitTransaction,
    FindProcessed,
    FinishIds,
    MarkProcessed,
    ReadOffset,
    ReleaseIds,
    RollBack,
    SaveOffset,
    Step,
    UnmarkProcessed,
)
from ottla.once.transactions import TransactionRuns
from ottla.records import Record, TopicPartition
from ottla.stepping import drive
from ottla.stores import Start

HERE = TopicPartition("orders", 0)


class Crash(BaseException):
    """The process is gone."""


def run_of(messages: Sequence[str], first: int = 0) -> Run:
    records: list[AnyRecord] = [
        Record(*HERE, first + index, 0, None, message, [], b"k", message.encode())
        for index, message in enumerate(messages)
    ]
    return Run(topic_partition=HERE, epoch=1, route="r", records=records, attempt=1, started_ms=0)


def ids_of(records: Sequence[AnyRecord]) -> dict[int, str]:
    return {record.offset: record.value for record in records}


class Database:
    """Committed tables, and those of the open transaction. `fails` is a (step number, how) pair."""

    def __init__(self) -> None:
        self.marks: list[str] = []
        self.results: list[str] = []
        self.next_offset: int | None = None
        self.epoch = 1
        self.effects: list[str] = []
        """What handlers did elsewhere: no rollback takes it back."""
        self.poison: set[str] = set()
        self.steps: list[str] = []
        self.fails: tuple[int, str] | None = None
        self.claims: dict[str, str] = {}
        self._open: tuple[list[str], list[str], int | None] | None = None

    def __call__(self, step: Step) -> Any:
        number = len(self.steps)
        self.steps.append(type(step).__name__)
        how = self.fails[1] if self.fails is not None and self.fails[0] == number else ""
        if isinstance(step, CallHandler) and how.startswith("away"):
            how = ""  # the handler is not the store
        if isinstance(step, RollBack | ReleaseIds) and how.startswith("away"):
            self._open = None
            return None  # these never fail: the store ends the transaction, and claims run out
        if how == "crash before":
            raise Crash
        if how == "away before":
            self._open = None
            raise StoreUnavailable("away")
        answer = self._do(step)
        if how == "crash after":
            raise Crash
        if how == "away after":  # the answer is lost
            self._open = None
            raise StoreUnavailable("away")
        return answer

    def _do(self, step: Step) -> Any:
        match step:
            case BeginTransaction():
                self._open = (list(self.marks), list(self.results), self.next_offset)
            case RollBack():
                self._open = None
            case CommitTransaction():
                assert self._open is not None
                self.marks, self.results, self.next_offset = self._open
                self._open = None
            case MarkProcessed(ids):
                assert self._open is not None
                new = [one for one in ids if one not in self._open[0]]
                self._open[0].extend(new)
                return new
            case UnmarkProcessed(ids):
                assert self._open is not None
                for one in ids:
                    self._open[0].remove(one)
            case SaveOffset(next_offset, epoch):
                assert self._open is not None
                if epoch != self.epoch:
                    return False
                self._open = (self._open[0], self._open[1], next_offset)
                return True
            case ReadOffset():
                return Start(self.next_offset, self.epoch)
            case CallHandler(records):
                return self._handle(records)
            case ClaimIds(ids):
                return [one for one in ids if one not in self.marks and self.claims.setdefault(one, "us") == "us"]
            case FindProcessed(ids):
                states = {one: None for one in ids if one in self.marks}
                return states | {one: 100 for one in ids if one in self.claims and one not in self.marks}
            case FinishIds(ids):
                self.marks += [one for one in ids if one not in self.marks]
                for one in ids:
                    self.claims.pop(one, None)
            case ReleaseIds(ids):
                for one in ids:
                    self.claims.pop(one, None)
        return None

    def _handle(self, records: list[AnyRecord]) -> RunResult:
        for index, record in enumerate(records):
            self.effects.append(record.value)
            if self._open is not None:
                self._open[1].append(record.value)
            if record.value in self.poison:
                failure = Failure(outcome=Retry(), error_type="Poison", message=record.value)
                return RunResult(done=records[:index], failures=[(record, failure)], untouched=records[index + 1 :])
        return RunResult()


def transactional(database: Database, *, has_inbox: bool, has_offsets: bool, told: list[str] | None = None) -> Any:
    return TransactionRuns(
        ordering=Ordering.PARTITION,
        is_batch=False,
        exceptions=ExceptionTable(),
        tell=lambda event, fields: None if told is None else told.append(event),
        ids_of=ids_of if has_inbox else None,
        epoch_of=(lambda name: 1) if has_offsets else None,
    )


def deliver_until_done(database: Database, make: Any, messages: Sequence[str], *, has_offsets: bool) -> list[str]:
    """As a consumer does: what is not done comes again, from the offset that is known. Returns the poison records."""
    runs, failed, at, rounds = make(), [], 0, 0
    while at < len(messages):
        rounds += 1
        assert rounds < 50
        run = run_of(messages[at:], at)
        try:
            result = drive(runs.handle(run), database)
        except Crash:
            database._open = None
            database.claims.clear()  # they ran out
            runs = make()
            at = (database.next_offset or 0) if has_offsets else at
            continue
        every = [*(run.records if result.done is None else result.done), *result.untouched]
        every += [record for record, _ in result.failures]
        assert sorted(record.offset for record in every) == list(range(at, len(messages))), "each in one place"
        at = len(messages) if result.done is None else at + len(result.done)
        if result.failures and not result.failures[0][1].is_outage:
            failed.append(result.failures[0][0].value)
            at += 1  # its dead letter is acknowledged
    return failed


HOWS = ("crash before", "crash after", "away before", "away after")


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("number", range(20))
@pytest.mark.parametrize(("has_inbox", "has_offsets"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("poison", [(), ("b",)])
def test_one_result_per_message_whatever_fails_where(
    how: str, number: int, has_inbox: bool, has_offsets: bool, poison: tuple[str, ...]
) -> None:
    database = Database()
    database.fails = (number, how)
    database.poison = set(poison)
    messages = ["a", "b", "c", "d"] + (["a", "c"] if has_inbox else [])

    def make() -> Any:
        return transactional(database, has_inbox=has_inbox, has_offsets=has_offsets)

    failed = deliver_until_done(database, make, messages, has_offsets=has_offsets)
    assert database.results == [one for one in "abcd" if one not in poison]
    # Between a dead letter and the offset that passes it, a crash makes the record come again.
    assert set(failed) == set(poison)
    if has_offsets:
        assert database.next_offset == len(messages)


@given(
    messages=st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=12),
    poison=st.sets(st.sampled_from("abcdefgh"), max_size=3),
    number=st.integers(0, 60),
    how=st.sampled_from(HOWS),
)
def test_any_messages_with_any_failure(messages: list[str], poison: set[str], number: int, how: str) -> None:
    database = Database()
    database.fails, database.poison = (number, how), poison

    def make() -> Any:
        return transactional(database, has_inbox=True, has_offsets=True)

    deliver_until_done(database, make, messages, has_offsets=True)
    assert database.results == [one for one in dict.fromkeys(messages) if one not in poison]


@given(
    messages=st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=12),
    poison=st.sets(st.sampled_from("abcdefgh"), max_size=3),
    number=st.integers(0, 60),
    how=st.sampled_from(HOWS),
)
def test_claims_let_a_message_be_handled_again_only_after_a_crash(
    messages: list[str], poison: set[str], number: int, how: str
) -> None:
    database = Database()
    database.fails, database.poison = (number, how), poison

    def make() -> Any:
        return ClaimRuns(
            ordering=Ordering.PARTITION,
            is_batch=False,
            exceptions=ExceptionTable(),
            tell=lambda event, fields: None,
            ids_of=ids_of,
        )

    deliver_until_done(database, make, messages, has_offsets=False)
    wanted = [one for one in dict.fromkeys(messages) if one not in poison]
    sound = [one for one in database.effects if one not in poison]
    assert set(database.marks) >= set(wanted)
    if how.startswith("crash"):
        assert set(sound) == set(wanted)
    else:
        assert sound == wanted, "a store that was away is no reason to handle anything twice"


def test_on_the_first_failure_the_run_is_rolled_back_and_done_singly() -> None:
    database = Database()
    database.poison = {"c"}
    result = drive(
        transactional(database, has_inbox=False, has_offsets=True).handle(run_of(["a", "b", "c", "d"])), database
    )
    assert database.results == ["a", "b"]
    assert [record.value for record in result.done or ()] == ["a", "b"]
    assert [record.value for record, _ in result.failures] == ["c"]
    assert [record.value for record in result.untouched] == ["d"]
    assert database.effects == ["a", "b", "c", "a", "b", "c"], "what is outside of the transaction happens twice"


def test_an_owner_that_was_fenced_saves_nothing() -> None:
    database, told = Database(), []
    database.epoch = 2
    runs = transactional(database, has_inbox=False, has_offsets=True, told=told)
    result = drive(runs.handle(run_of(["a", "b"])), database)
    assert database.results == []
    assert result.failures[0][1].is_outage
    assert told == ["run_fenced"]


def test_a_commit_whose_answer_was_lost_is_looked_up() -> None:
    for how, handled in (("away after", ["a"]), ("away before", ["a", "a"])):
        database = Database()
        runs = transactional(database, has_inbox=False, has_offsets=True)
        database.fails = (3, how)
        first = drive(runs.handle(run_of(["a"])), database)
        assert database.steps == ["BeginTransaction", "CallHandler", "SaveOffset", "CommitTransaction"]
        assert first.failures[0][1].is_outage
        database.fails = None
        second = drive(runs.handle(run_of(["a"])), database)
        assert "ReadOffset" in database.steps
        assert not second.failures
        assert database.results == ["a"]
        assert database.effects == handled


def test_marks_of_a_commit_whose_answer_was_lost_are_not_duplicates() -> None:
    database, told = Database(), []
    runs = transactional(database, has_inbox=True, has_offsets=False, told=told)
    database.fails = (3, "away after")
    drive(runs.handle(run_of(["a"])), database)
    drive(runs.handle(run_of(["a"])), database)
    assert told == []
    drive(runs.handle(run_of(["a"])), database)
    assert told == ["duplicates_skipped"]


def test_records_behind_a_busy_message_wait_for_it() -> None:
    database = Database()
    database.claims["b"] = "somebody else"
    runs = ClaimRuns(
        ordering=Ordering.PARTITION,
        is_batch=False,
        exceptions=ExceptionTable(),
        tell=lambda event, fields: None,
        ids_of=ids_of,
    )
    result = drive(runs.handle(run_of(["a", "b", "c"])), database)
    ((waits, failure),) = result.failures
    assert database.effects == ["a"]
    assert waits.value == "b"
    assert failure.is_outage
    assert failure.outcome == Retry(after_s=0.1)
    assert [record.value for record in result.untouched] == ["c"]
    assert database.claims == {"b": "somebody else"}, "what was not handled is free for others"
