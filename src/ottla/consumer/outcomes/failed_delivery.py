"""One record that failed in a run, with everything that the decision about it needs, and the redeliveries of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ottla.consumer.model.effects import Effect, Notice
from ottla.consumer.model.run import AnyRecord
from ottla.consumer.outcomes.notices import notice_of
from ottla.consumer.partitions.partition import Attempts, PartitionState
from ottla.failures.exceptions import Failure
from ottla.failures.retry_headers import retry_state_of


@dataclass(frozen=True, slots=True)
class FailedDelivery:
    """See the module. `effects` is where what follows from it is added."""

    state: PartitionState
    record: AnyRecord
    failure: Failure
    now_ms: int
    """Monotonic time of the failure."""
    wall_ms: int
    effects: list[Effect]

    def failure_notice(self, event: str, level: str = "warning", *, trace: str = "", **fields: object) -> Notice:
        """Return a log event about this failure. `trace`: the handler's traceback, if it is to be logged."""
        return notice_of(event, level, self.state, self.record, self.failure, trace=trace, **fields)

    def log_failure(self, event: str, level: str = "warning", *, trace: str = "", **fields: object) -> None:
        self.effects.append(self.failure_notice(event, level, trace=trace, **fields))

    def count(self) -> Attempts:
        """Count this failure. Returns the number of failures of its record."""
        attempts = self.state.attempts.get(self.record.offset)
        if attempts is None:
            attempts = first_attempts(self.state, self.record, self.now_ms)
            self.state.attempts[self.record.offset] = attempts
        if self.failure.is_outage:
            attempts.outages += 1
        else:
            attempts.failed += 1
        return attempts

    def end_count(self) -> Attempts | None:
        """Stop counting. Returns what was counted, or None if the record has not failed in this assignment."""
        return self.state.attempts.pop(self.record.offset, None)


@dataclass(slots=True)
class Redeliveries:
    """The records of one run that are delivered again."""

    retries: list[tuple[AnyRecord, int]] = field(default_factory=list)
    """Each with the time when it is due (monotonic)."""
    isolated: list[Sequence[AnyRecord]] = field(default_factory=list)
    """Groups that are delivered once more at once, each in its own run."""
    logged: Failure | None = None
    """The failure whose traceback was logged last: the records of a batch fail with one."""

    def groups(self, *, is_batch: bool) -> list[tuple[list[AnyRecord], int]]:
        """Return the records that are retried together, with their time. A batch is retried as one."""
        if is_batch and self.retries:
            return [([record for record, _ in self.retries], max(due_ms for _, due_ms in self.retries))]
        return [([record], due_ms) for record, due_ms in self.retries]


def first_attempts(state: PartitionState, record: AnyRecord, since_ms: int) -> Attempts:
    """Return the count of a record that has not failed here before, with what it carries in a retry topic."""
    before = retry_state_of(record.headers) if state.level is not None else None
    if before is None:
        return Attempts(since_ms=since_ms)
    return Attempts(since_ms=since_ms, first_failure_ms=before.first_failure_ms or 0, carried=before.attempts)
