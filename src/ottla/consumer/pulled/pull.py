"""The runs of a caller who takes records and settles each of them later: the core of `Consumer`.

The worker of a handler finishes a run as a whole. A caller who iterates, or polls and acknowledges, finishes it record
by record, in any order. The run ends when all its records are settled, or when the rest is given back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ottla.consumer.model.events import RunFinished
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.failures.exceptions import Failure
from ottla.records import TopicPartition


class OpenRun:
    """A run with settled and unsettled records."""

    __slots__ = ("_failures", "_settled", "_withdrawn", "deadlines", "expired", "handed_out", "joined", "run")

    def __init__(self, run: Run) -> None:
        self.run = run
        self._settled: set[int] = set()
        self._failures: list[tuple[AnyRecord, Failure]] = []
        self._withdrawn = 0
        self.deadlines: Mapping[int, int] | None = None
        """When each record expires, by offset, in epoch milliseconds; None if none does."""
        self.expired: list[AnyRecord] = []
        """Records that were settled because they had expired."""
        self.handed_out = 0
        """The number of records that the caller was given."""
        self.joined = 0
        """The number of records, from the first, that are settled by transactions or are in an open one."""

    @property
    def is_over(self) -> bool:
        return len(self._settled) + len(self._failures) + self._withdrawn == len(self.run.records)

    def withdraw(self, records: int) -> None:
        """Count records that are not handed out, because one before them failed and order is kept."""
        self._withdrawn += records

    def is_settled(self, record: AnyRecord) -> bool:
        return record.offset in self._settled or any(failed is record for failed, _ in self._failures)

    def settle(self, record: AnyRecord, failure: Failure | None) -> None:
        if failure is not None:
            self._failures.append((record, failure))
            return
        self._settled.add(record.offset)
        run = self.run
        # The contiguous part may be committed before the run ends.
        while run.done < len(run.records) and run.records[run.done].offset in self._settled:
            run.done += 1

    def finish(self) -> RunFinished:
        """Finish the run. Returns its result; records that are not settled are untouched."""
        if len(self._settled) == len(self.run.records):
            return RunFinished(self.run, RunResult(expired=self.expired))
        failed = {record.offset for record, _ in self._failures}
        done = [record for record in self.run.records if record.offset in self._settled]
        rest = [r for r in self.run.records if r.offset not in self._settled and r.offset not in failed]
        result = RunResult(done=done, failures=self._failures, untouched=rest, expired=self.expired)
        return RunFinished(self.run, result)


class PullBook:
    """The open runs of one consumer, by partition. A record belongs to the run whose epoch is the newest."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[TopicPartition, OpenRun] = {}

    def open(self, run: Run) -> OpenRun:
        opened = self._open[run.topic_partition] = OpenRun(run)
        return opened

    def run_of(self, record: AnyRecord) -> OpenRun | None:
        """Return the run in which this record waits to be settled; None if it was settled, or its partition was
        revoked."""
        opened = self._open.get(record.topic_partition)
        if opened is None or not any(record is own for own in _near(opened.run.records, record)):
            return None
        return None if opened.is_settled(record) else opened

    def settle(self, record: AnyRecord, failure: Failure | None) -> RunFinished | None:
        """Settle a record. Returns the end of its run if it was the last one."""
        opened = self.run_of(record)
        if opened is None:
            return None
        opened.settle(record, failure)
        return self.close(opened) if opened.is_over else None

    def close(self, opened: OpenRun) -> RunFinished:
        """Give back the records of a run that are not settled."""
        if self._open.get(opened.run.topic_partition) is opened:
            del self._open[opened.run.topic_partition]
        return opened.finish()

    def close_all(self) -> list[RunFinished]:
        return [self.close(opened) for opened in list(self._open.values())]

    def open_partitions(self) -> list[TopicPartition]:
        """Return the partitions with records that the caller has not settled."""
        return list(self._open)

    def close_cancelled(self) -> list[RunFinished]:
        """Give back the rest of the runs whose partitions are being revoked."""
        return [self.close(opened) for opened in list(self._open.values()) if opened.run.is_cancelled]


def _near(records: Sequence[AnyRecord], record: AnyRecord) -> Iterator[AnyRecord]:
    """Yield the record at the same offset, found by bisection: a run has up to a few hundred."""
    low, high = 0, len(records)
    while low < high:
        middle = (low + high) // 2
        if records[middle].offset < record.offset:
            low = middle + 1
        else:
            high = middle
    if low < len(records):
        yield records[low]
