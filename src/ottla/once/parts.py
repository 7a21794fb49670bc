"""Shared by both ways of handling a run: the part passed to the handler, results, and duplicates inside a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.consumer.partitions.lanes import Ordering
from ottla.failures.exceptions import Failure

IdsOf = Callable[[Sequence[AnyRecord]], Mapping[int, str]]
"""The message ids of records, by offset."""

_OFFSET: Final = attrgetter("offset")


class PartOfRun(Run):
    """Records of a run as passed to the handler. Their results join the run only after the commit, so this class has a
    `done` of its own: a handled record is not done while its transaction is open."""

    __slots__ = ("_owns", "outputs", "resources", "transaction", "whole")

    def __init__(
        self, whole: Run, records: list[AnyRecord], *, transaction: Any, owns: Callable[[], bool] | None = None
    ) -> None:
        self.whole = whole
        """The run that it is a part of."""
        self._owns = owns
        super().__init__(
            topic_partition=whole.topic_partition,
            epoch=whole.epoch,
            route=whole.route,
            records=records,
            attempt=whole.attempt,
            started_ms=whole.started_ms,
        )
        self.transaction = transaction
        self.outputs: Any = None
        self.resources: Any = None

    @property
    def is_owner(self) -> bool:
        return self.whole.is_owner and (self._owns is None or self._owns())

    @property
    def is_cancelled(self) -> bool:
        """Return True also after the claims were lost: remaining records are redelivered, unless the new owner has
        processed them.
        """
        return self.whole.is_cancelled or not (self._owns is None or self._owns())

    @is_cancelled.setter
    def is_cancelled(self, value: bool) -> None:
        """Ignore the value: only the session cancels, on the whole run."""


def first_of_each(records: Sequence[AnyRecord], ids: Mapping[int, str]) -> tuple[dict[str, AnyRecord], list[AnyRecord]]:
    """Return the first record of each id, by the ids, and its copies in the same run."""
    by_id = {ids[record.offset]: record for record in records}
    if len(by_id) == len(records):  # mostly
        return by_id, []
    by_id = {}
    copies = [record for record in records if by_id.setdefault(ids[record.offset], record) is not record]
    return by_id, copies


def in_order(records: Iterable[AnyRecord]) -> list[AnyRecord]:
    return sorted(records, key=_OFFSET)


def unavailable(records: Sequence[AnyRecord], failure: Failure, ordering: Ordering, *, is_batch: bool) -> RunResult:
    """Return a result with nothing handled, for a reason that is not a record's fault: all records are redelivered."""
    if ordering is Ordering.PARTITION and not is_batch:
        return RunResult(done=(), failures=[(records[0], failure)], untouched=records[1:])
    return RunResult(done=(), failures=[(record, failure) for record in records])


def event_place(run: Run, records: int) -> dict[str, object]:
    """Return the fields of an event about so many records of a run."""
    return {"partition": str(run.topic_partition), "offset": run.records[0].offset, "records": records}


class Account:
    """Sums up the results of a run over several transactions."""

    __slots__ = ("done", "duplicates", "expired", "failures", "malformed", "skipped", "untouched")

    def __init__(self) -> None:
        self.done: list[AnyRecord] = []
        self.failures: list[tuple[AnyRecord, Failure]] = []
        self.untouched: list[AnyRecord] = []
        self.expired: list[AnyRecord] = []
        self.skipped = 0
        self.malformed = 0
        self.duplicates = 0

    def add(self, result: RunResult, records: Sequence[AnyRecord]) -> None:
        self.done += records if result.done is None else result.done
        self.failures += result.failures
        self.untouched += result.untouched
        self.expired += result.expired
        self.skipped += result.skipped
        self.malformed += result.malformed

    def result(self) -> RunResult:
        if not self.failures and not self.untouched:
            return RunResult(skipped=self.skipped, expired=self.expired)
        return RunResult(
            done=in_order(self.done),
            failures=self.failures,
            untouched=in_order(self.untouched),
            skipped=self.skipped,
            malformed=self.malformed,
            expired=self.expired,
        )
