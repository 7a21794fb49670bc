"""Parts of a group member's Kafka transaction: a handled run, a dead letter, or an offset alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from ottla.consumer.model.failed_writes import OnWritten, Write
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.failures.exceptions import ExceptionTable
from ottla.once.outputs import OutputRecord, of_records
from ottla.producer.bulk import Outgoing
from ottla.records import TopicPartition

Then = Callable[[RunResult], None]

ROWS_FOR_A_RECORD: Final = 100
"""Rows written as columns that cost about as much as one record written alone."""


class TransactionPart(Protocol):
    """One partition's part of a transaction: all records before `next_offset` are processed when it is committed."""

    name: TopicPartition
    epoch: int
    next_offset: int
    outputs: Sequence[Any]
    """Records that the shell's client can write: `OutputRecord`, or its own type."""
    is_alone: bool
    """Commit it in a transaction of its own."""
    size: int
    """Its share of the limit of a transaction, in records."""

    def committed(self) -> None: ...

    def refused(self, at: int, error: Exception) -> TransactionPart | None:
        """Handle a permanent error of the output at this index. Returns the rest to commit, if any."""

    def abandon(self) -> None:
        """Report that the part was not committed: another member owns the partition, or this member ends."""


class HandledRun:
    """A handled run. `then` is called with the result once it is committed or has failed."""

    is_alone = False

    def __init__(
        self, run: Run, result: RunResult, outputs: Sequence[OutputRecord], *, exceptions: ExceptionTable, then: Then
    ) -> None:
        self._run = run
        self._result = result
        self._exceptions = exceptions
        self._then = then
        done = run.records if result.done is None else result.done
        self.name, self.epoch = run.topic_partition, run.epoch
        self.next_offset = done[-1].offset + 1
        self.outputs = outputs
        self.size = len(outputs)

    def committed(self) -> None:
        self._then(self._result)

    def refused(self, at: int, error: Exception) -> TransactionPart | None:
        failure = self._exceptions.failure_of(error)
        offset = self.outputs[at].offset
        records = self._run.records
        if offset is None:  # a batch sent it: which record is to blame is not known
            every = [(record, failure) for record in records]
            self._then(RunResult(done=(), failures=every, is_batch_failure=True))
            return None
        bad = next(record for record in records if record.offset == offset)
        done = [record for record in self._done() if record.offset < offset]
        expired = [record for record in self._result.expired if record.offset < offset]
        untouched = [record for record in records if record.offset > offset]
        result = RunResult(
            done=done,
            failures=[(bad, failure)],
            untouched=untouched,
            expired=expired,
            skipped=min(self._result.skipped, len(done)),
        )
        if not done:
            self._then(result)
            return None
        kept = of_records(self.outputs, {record.offset for record in done})
        return HandledRun(self._run, result, kept, exceptions=self._exceptions, then=self._then)

    def abandon(self) -> None:
        self._then(RunResult(done=(), untouched=self._run.records))

    def _done(self) -> Sequence[AnyRecord]:
        return self._run.records if self._result.done is None else self._result.done


class HandledRows:
    """Rows to write for one call of a column handler. `then` is called with the result once it is committed or has
    failed; `refused_with` converts an error of an unknown row into a result.
    """

    is_alone = False

    def __init__(
        self,
        run: Run,
        next_offset: int,
        result: RunResult,
        outputs: Sequence[Any],
        *,
        rows: int,
        refused_with: Callable[[Exception], RunResult],
        then: Then,
    ) -> None:
        self._run = run
        self._result = result
        self._refused_with = refused_with
        self._then = then
        self.name, self.epoch, self.next_offset = run.topic_partition, run.epoch, next_offset
        self.outputs = outputs
        self.size = rows // ROWS_FOR_A_RECORD

    def committed(self) -> None:
        self._then(self._result)

    def refused(self, at: int, error: Exception) -> TransactionPart | None:
        self._then(self._refused_with(error))
        return None

    def abandon(self) -> None:
        self._then(RunResult(done=(), untouched=self._run.records))


class DeadLetterPart:
    """A dead letter or a write to a retry topic, committed with the offset behind its record."""

    is_alone = True
    size = 1

    def __init__(self, failed_write: Write, on_written: OnWritten) -> None:
        self._failed_write = failed_write
        self._on_written = on_written
        self._forms = failed_write.forms()
        self._form, built = next(self._forms)
        self.name, self.epoch = failed_write.topic_partition, failed_write.epoch
        self.next_offset = failed_write.record.offset + 1
        self.outputs: Sequence[OutputRecord] = [self._output(built.value, built.key, built.headers)]

    def committed(self) -> None:
        self._on_written(self._failed_write, None, form=self._form)

    def refused(self, at: int, error: Exception) -> TransactionPart | None:
        is_too_large = bool(getattr(error, "is_too_large", False))
        following = next(self._forms, None) if is_too_large else None
        if following is None:
            self._on_written(self._failed_write, f"{type(error).__name__}: {error}", fits=not is_too_large)
            return None
        self._form, built = following
        self.outputs = [self._output(built.value, built.key, built.headers)]
        return self

    def abandon(self) -> None:
        self._on_written(self._failed_write, "its partition was given to another member, or this one ends")

    def _output(
        self, value: bytes | None, key: bytes | None, headers: Sequence[tuple[str, bytes | None]]
    ) -> OutputRecord:
        target, partition = self._failed_write.target, self._failed_write.target_partition
        return OutputRecord(target, Outgoing(value, key, list(headers), partition), self._failed_write.record.offset)


class OffsetOnly:
    """The offset behind records that were skipped without a result."""

    is_alone = False
    outputs: Sequence[OutputRecord] = ()
    size = 0

    def __init__(self, name: TopicPartition, epoch: int, next_offset: int) -> None:
        self.name, self.epoch, self.next_offset = name, epoch, next_offset

    def committed(self) -> None:
        """Do nothing: no caller waits for it."""

    def refused(self, at: int, error: Exception) -> TransactionPart | None:
        raise AssertionError("it has no outputs")

    def abandon(self) -> None:
        """Do nothing: no caller waits for it."""


def contiguous(records: Sequence[AnyRecord], result: RunResult) -> RunResult:
    """Return the part of the result that one offset can express: records behind an unfinished one are redelivered."""
    if result.done is None:
        return result
    if result.is_batch_failure:
        own = {record.offset: failure for record, failure in result.failures}
        shared = result.failures[0][1]
        every = [(record, own.get(record.offset, shared)) for record in records]
        return RunResult(done=(), failures=every, is_batch_failure=True, malformed=result.malformed)
    done = {record.offset for record in result.done}
    count = next((at for at, record in enumerate(records) if record.offset not in done), len(records))
    if count == len(records):
        return RunResult(expired=result.expired, skipped=result.skipped)
    head, tail = records[:count], records[count:]
    failures = [(record, failure) for record, failure in result.failures if record is tail[0]]
    kept = {record.offset for record in head}
    return RunResult(
        done=head,
        failures=failures,
        untouched=tail[len(failures) :],
        expired=[record for record in result.expired if record.offset in kept],
        skipped=min(result.skipped, count),
        malformed=sum(failure.kind == "malformed" for _, failure in failures),
        fatal=result.fatal,
    )
