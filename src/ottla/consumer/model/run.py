"""A run: records of one partition that one worker handles together, and their result.

Work is handed out in runs, not records: a lock, a queue hop and a step of the session cost some 20 µs, a record of a
fast handler about 2 µs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from ottla.failures.exceptions import Failure
from ottla.records import Record, TopicPartition
from ottla.telemetry import Listeners

AnyRecord: TypeAlias = Record[Any]


class Run:
    """Records of one partition, in order, for one worker.

    Two fields are written outside the session, each by one side only, so that no lock is needed per record: the worker
    counts `done` up after each record (of a run that is handled in order), and the session sets `is_cancelled` to ask
    the worker to stop after the record it is at.
    """

    __slots__ = (
        "accounted",
        "attempt",
        "chosen",
        "done",
        "epoch",
        "fetched_ms",
        "is_cancelled",
        "is_claimed",
        "is_first",
        "is_handled",
        "reached",
        "records",
        "route",
        "seen",
        "seen_ms",
        "started_ms",
        "store_s",
        "topic_partition",
    )

    transaction: Any = None
    """The database transaction in which the handler works, where there is one."""

    outputs: Any = None
    """The handler's sends in the transaction of its offsets, if there is one."""

    resources: Any = None
    """What is open for the handler's calls in this run, if there is something."""

    can_grow = False
    """Whether `grow` may be called."""

    def __init__(
        self,
        *,
        topic_partition: TopicPartition,
        epoch: int,
        route: str,
        records: Sequence[AnyRecord],
        attempt: int,
        started_ms: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.epoch = epoch
        self.route = route
        self.records = records
        self.attempt = attempt
        """Which delivery of these records this is; 1 is the first."""
        self.started_ms = started_ms
        self.fetched_ms = started_ms
        """When the oldest of them came from the client, as far as that is known per batch."""
        self.done = 0
        self.is_cancelled = False
        self.is_first = False
        """None of these records was handed out before: they are as the client gave them."""
        self.accounted = 0
        """How many of `done` the session has counted already."""
        self.reached = 0
        """The index after the last record that was handed out. `done` may be less, while sends wait for their
        acknowledgement. Written by the worker."""
        self.seen = 0
        """How far it had come at the last health check."""
        self.seen_ms = 0
        """When a health check found last that it had come further."""
        self.is_claimed = False
        """It waits for the commit of its end, and is handed out after that."""
        self.is_handled = False
        """Its worker is free, and its result waits for acknowledgements."""
        self.chosen: dict[AnyRecord, Any] | None = None
        """The handler of each record (by identity, so not of a copy), where that goes by event type. Written by the
        worker."""
        self.store_s = 0.0
        """Seconds that a store took for the run as a whole. Written by the worker."""

    def grow(self) -> bool:
        """Settle its records, all of which are done, and add one more. Returns False if there is none to be added: then
        nothing has changed. Called by the worker."""
        return False

    @property
    def is_owner(self) -> bool:
        """True if its messages belong to this run alone."""
        return True

    @property
    def handed_out(self) -> int:
        """The number of records, from the first, that the handler may have seen. Until the run is handled, the worker
        may be at the one after those that are done."""
        if self.is_handled:
            return self.reached
        return min(max(self.done + 1, self.reached), len(self.records))

    @property
    def last_handed_out(self) -> AnyRecord | None:
        """The record that the handler got last, or gets next. None if the run has no records."""
        return self.records[max(0, self.handed_out - 1)] if self.records else None

    def __repr__(self) -> str:
        return (
            f"Run({self.topic_partition}, epoch={self.epoch}, {len(self.records)} records, "
            f"attempt={self.attempt}, done={self.done})"
        )


@dataclass(slots=True, kw_only=True)
class RunResult:
    """The result of a run. Every record of it is in exactly one of: done, failed, untouched.

    `done` is None when all records are done, the usual case, which then costs nothing per record. `untouched` records
    were not delivered, because the run was cancelled or a failure holds back what follows it.
    """

    done: Sequence[AnyRecord] | None = None
    failures: Sequence[tuple[AnyRecord, Failure]] = ()
    untouched: Sequence[AnyRecord] = ()
    whole: tuple[Sequence[AnyRecord], Failure] | None = None
    """Rows that failed together: which of them is the cause is unknown. They are not in `failures`."""
    is_batch_failure: bool = False
    """A batch handler raised, and which record is the cause is unknown: all failures are one."""
    expired: Sequence[AnyRecord] = ()
    """Those of `done` that were not delivered, because they had expired."""
    skipped: int = 0
    malformed: int = 0
    fatal: Failure | None = None
    """The worker itself died (not the handler failed): the partition stops and the consumer is unhealthy."""


class Unconfirmed(Protocol):
    """A handled run that waits for the acknowledgement of its handler's sends.

    Its worker does not wait with it, and handles other runs during the round trip.
    """

    def when_confirmed(self, then: Callable[[RunResult], None]) -> None:
        """Call `then` with the result, at once or later, in whichever thread brings the last acknowledgement."""


class UnconfirmedOnLoop(Protocol):
    """`Unconfirmed` for an event loop."""

    async def wait(self) -> RunResult:
        """Wait for the result and return it."""
        ...


def broken_run(run: Run, failure: Failure) -> RunResult:
    """Return the result of a run that ended with an error outside the handler: its current record failed, the rest is
    untouched. After the last record the failure is that one's, since the cause is unknown."""
    at = min(run.done, len(run.records) - 1)
    return RunResult(done=run.records[:at], failures=[(run.records[at], failure)], untouched=run.records[at + 1 :])


def abandoned_run(run: Run, fatal: Failure) -> RunResult:
    """Return the result of a run whose worker died: records that the handler returned from are done, the rest is
    untouched."""
    return RunResult(done=run.records[: run.done], untouched=run.records[run.done :], fatal=fatal)


def count_run(
    hooks: Listeners, group: str, run: Run, result: RunResult, duration_ms: int, *, is_batch: bool, wall_ms: int
) -> None:
    """Count a finished run in the metrics. `duration_ms` is its worker's time, `wall_ms` the time of day."""
    if not hooks:
        return
    topic, records = run.topic_partition.topic, run.records
    handled = len(records) if result.done is None else len(result.done)
    hooks.run_finished(
        group=group,
        handler=run.route,
        topic=topic,
        handled=handled,
        failed=len(result.failures),
        malformed=result.malformed,
        skipped=result.skipped,
        duration_ms=duration_ms,
    )
    if result.failures:
        undecoded = Counter((each.part, each.serde, each.kind) for _, each in result.failures if each.part)
        for (part, serde, kind), count in undecoded.items():
            hooks.malformed(
                group=group, handler=run.route, topic=topic, part=part, serde=serde, kind=kind, records=count
            )
    delivered = handled + len(result.failures) - result.malformed
    if delivered > 0:
        first_ms = records[0].timestamp_ms
        hooks.run_timed(
            group=group,
            handler=run.route,
            topic=topic,
            records=delivered,
            is_batch=is_batch,
            duration_s=duration_ms / 1_000,
            buffered_s=max(0, run.started_ms - run.fetched_ms) / 1_000,
            end_to_end_s=max(0, wall_ms - first_ms) / 1_000 if first_ms >= 0 else None,
        )
