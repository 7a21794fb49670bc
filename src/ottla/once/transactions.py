"""Runs whose work, marks and offset are one database transaction.

    begin → mark the messages → hand the new ones to the handler → save the offset → commit

On the first failure everything is rolled back, and the run is done again record by record, so that only the bad record
is left. A record that fails alone goes the way of all failures; its transaction was rolled back too.

If the answer to a commit is lost, the records come again, and what is in the database decides: the saved offset, or
the marks. Nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.consumer.partitions.lanes import Ordering
from ottla.errors import StoreUnavailable
from ottla.failures.exceptions import ExceptionTable, Failure
from ottla.failures.outcomes import Dead, Retry
from ottla.once.parts import Account, IdsOf, event_place, first_of_each, in_order, unavailable
from ottla.once.steps import (
    BeginTransaction,
    CallHandler,
    CommitTransaction,
    MarkProcessed,
    ReadOffset,
    RollBack,
    RunProcedure,
    SaveOffset,
    Step,
    UnmarkProcessed,
)
from ottla.records import TopicPartition
from ottla.stepping import Procedure

Tell = Callable[[str, Mapping[str, object]], None]
"""Logs an event with its fields."""


class TransactionRuns:
    """Runs one handler. `ids_of` is None without an inbox; `epoch_of` is None without offsets in the database."""

    def __init__(
        self,
        *,
        ordering: Ordering,
        is_batch: bool,
        exceptions: ExceptionTable,
        tell: Tell,
        ids_of: IdsOf | None = None,
        on_duplicate: Dead | None = None,
        epoch_of: Callable[[TopicPartition], int | None] | None = None,
        saved: dict[TopicPartition, int] | None = None,
    ) -> None:
        self._ordering = ordering
        self._is_batch = is_batch
        self._exceptions = exceptions
        self._event = tell
        self._ids_of = ids_of
        self._on_duplicate = on_duplicate
        self._epoch_of = epoch_of
        self._saved: dict[TopicPartition, int] = {} if saved is None else saved
        self._unsure: dict[TopicPartition, set[str]] = {}
        """Partitions whose last commit has an unknown outcome, with the messages that it marked."""

    def handle(self, run: Run) -> RunProcedure:
        """Yield the steps of one run."""
        epoch = None if self._epoch_of is None else self._epoch_of(run.topic_partition)
        if self._epoch_of is not None and epoch is None:
            return self._away(list(run.records), StoreUnavailable(f"{run.topic_partition} is not claimed"))
        account = Account()
        records = yield from self._already_saved(run, epoch, account)
        if isinstance(records, RunResult):
            return records
        if records:
            result = yield from self._attempt(run, records, epoch, account, is_first=True)
            if result is None:
                result = yield from self._singly(run, records, epoch, account)
            account.add(result, ())
        if account.duplicates:
            self._event("duplicates_skipped", event_place(run, account.duplicates))
        if not account.failures and not account.untouched:
            run.done = len(run.records)
        return account.result()

    def _already_saved(
        self, run: Run, epoch: int | None, account: Account
    ) -> Procedure[Step, Any, list[AnyRecord] | RunResult]:
        """After an ambiguous commit, count what was committed as processed. Returns the rest."""
        name = run.topic_partition
        if epoch is None or name not in self._unsure:
            return list(run.records)
        try:
            start = yield ReadOffset()
        except StoreUnavailable as error:
            return self._away(list(run.records), error)
        self._unsure.pop(name, None)
        next_offset = None if start is None or start.epoch != epoch else start.next_offset
        if next_offset is None:
            return list(run.records)
        account.done += [record for record in run.records if record.offset < next_offset]
        return [record for record in run.records if record.offset >= next_offset]

    def _singly(self, run: Run, records: list[AnyRecord], epoch: int | None, account: Account) -> RunProcedure:
        """Run one transaction per record, up to the first failure if order matters."""
        failed_keys: set[bytes | None] = set()
        is_over = False
        for record in records:
            holds = is_over or run.is_cancelled
            if holds or (self._ordering is Ordering.KEY and record.raw_key in failed_keys):
                account.untouched.append(record)
                continue
            result = yield from self._attempt(run, [record], epoch, account, is_first=False)
            if result is None:
                raise AssertionError("a single record always has a result")
            account.add(result, ())
            if result.failures:
                is_over = self._ordering is Ordering.PARTITION or result.failures[0][1].is_outage
                if record.raw_key is not None:
                    failed_keys.add(record.raw_key)
            elif not account.failures:
                run.done = run.reached = len(account.done)
        return RunResult(done=())

    def _attempt(
        self, run: Run, records: list[AnyRecord], epoch: int | None, account: Account, *, is_first: bool
    ) -> Procedure[Step, Any, RunResult | None]:
        """Run one transaction. Returns None if it was rolled back and the records are to be tried one by one."""
        is_alone = len(records) == 1
        marked: list[str] = []
        try:
            try:
                ids = {} if self._ids_of is None else self._ids_of(records)
            except Exception as error:
                return self._failed(records[0], self._exceptions.failure_of(error)) if is_alone else None
            yield BeginTransaction()
            fresh = records
            copies: list[AnyRecord] = []
            if self._ids_of is not None:
                fresh, copies = yield from self._unseen(run, records, ids)
                marked = [ids[record.offset] for record in fresh]
            if copies and self._on_duplicate is not None:
                yield RollBack()
                return self._failed(records[0], Failure.of_outcome(self._on_duplicate)) if is_alone else None
            result: RunResult = (yield CallHandler(fresh)) if fresh else RunResult()
            if result.failures:
                yield RollBack()
                return self._of_failures(records, result, is_alone=is_alone)
            untouched = in_order([*result.untouched, *_behind(copies, result)])
            held = {record.offset for record in untouched}
            taken = [record for record in records if record.offset not in held] if held else records
            if not taken:
                yield RollBack()
                return RunResult(done=(), untouched=untouched)
            if marked and result.untouched:
                yield UnmarkProcessed(sorted(ids[record.offset] for record in result.untouched))
                marked = [message_id for message_id in marked if message_id in {ids[r.offset] for r in taken}]
            if epoch is not None:
                is_ours = yield SaveOffset(taken[-1].offset + 1, epoch)
                if not is_ours:
                    yield RollBack()
                    self._event("run_fenced", {**event_place(run, len(records)), "epoch": epoch})
                    return self._away(records, StoreUnavailable(f"{run.topic_partition}: another member claimed it"))
        except StoreUnavailable as error:
            return self._away(records, error)
        except Exception as error:
            # The store's own statement failed and the store is not away: the handler broke the transaction.
            yield RollBack()
            return self._failed(records[0], self._exceptions.failure_of(error)) if is_alone else None
        try:
            yield CommitTransaction()
        except StoreUnavailable as error:
            self._unsure.setdefault(run.topic_partition, set()).update(marked)
            return self._away(records, error)
        except Exception as error:  # a constraint that is checked at the commit
            yield RollBack()
            return self._failed(records[0], self._exceptions.failure_of(error)) if is_alone else None
        if epoch is not None:
            self._saved[run.topic_partition] = taken[-1].offset + 1
        account.duplicates += sum(1 for record in copies if record.offset not in held)
        return RunResult(
            done=taken,
            untouched=untouched,
            skipped=result.skipped,
            malformed=result.malformed,
            expired=result.expired,
        )

    def _unseen(
        self, run: Run, records: list[AnyRecord], ids: Mapping[int, str]
    ) -> Procedure[Step, Any, tuple[list[AnyRecord], list[AnyRecord]]]:
        """Mark the records. Returns the new ones and the copies."""
        by_id, copied = first_of_each(records, ids)
        new = yield MarkProcessed(sorted(by_id))
        unsure = self._unsure.get(run.topic_partition)
        if len(new) == len(records) and not unsure:  # mostly: each is here once and was unclaimed
            return in_order(records), []
        fresh = [record for message_id, record in by_id.items() if message_id in new]
        copies = copied + [record for message_id, record in by_id.items() if message_id not in new]
        if unsure:
            # Not copies: the commit whose answer was lost has marked them.
            own = {ids[record.offset] for record in copies} & unsure
            copies = [record for record in copies if ids[record.offset] not in own]
            unsure -= {ids[record.offset] for record in records}
            if not unsure:
                del self._unsure[run.topic_partition]
        return in_order(fresh), in_order(copies)

    def _of_failures(self, records: list[AnyRecord], result: RunResult, *, is_alone: bool) -> RunResult | None:
        outage = next((failure for _, failure in result.failures if failure.is_outage), None)
        if outage is not None:
            return unavailable(records, outage, self._ordering, is_batch=self._is_batch)
        if not is_alone:
            return None
        return RunResult(
            done=(), failures=result.failures, malformed=result.malformed, is_batch_failure=result.is_batch_failure
        )

    def _failed(self, record: AnyRecord, failure: Failure) -> RunResult:
        outcome = failure.outcome
        if not isinstance(outcome, Retry | Dead):
            # Declared as Ack or Skip, but nothing of it was committed: it can only come again.
            failure = Failure(
                outcome=Retry(reason="its transaction failed"),
                error_type=failure.error_type,
                message=failure.message,
                stack_trace=failure.stack_trace,
                is_outage=failure.is_outage,
            )
        return RunResult(done=(), failures=[(record, failure)])

    def _away(self, records: list[AnyRecord], error: StoreUnavailable) -> RunResult:
        failure = self._exceptions.failure_of(error)
        return unavailable(records, failure, self._ordering, is_batch=self._is_batch)


def _behind(copies: list[AnyRecord], result: RunResult) -> list[AnyRecord]:
    """Return copies of a record that was not handled because the run was cancelled: they stay behind it."""
    if not result.untouched:
        return []
    first = min(record.offset for record in result.untouched)
    return [record for record in copies if record.offset > first]
