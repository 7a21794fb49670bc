"""Progress of a run: the outcome of each record, and the records that a failure holds back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.app.delivery.handler_result import read_returned
from ottla.app.delivery.pending_sends import Pending, unsettled
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.consumer.partitions.lanes import Ordering
from ottla.failures.exceptions import Failure
from ottla.failures.outcomes import Ack, Dead, Skip
from ottla.producer.record_sends import Sent, disown


class RunProgress:
    """The account of one run. See the module."""

    __slots__ = (
        "_done",
        "_failed_keys",
        "_failures",
        "_is_held",
        "_malformed",
        "_ordering",
        "_position",
        "_untouched",
        "breathe_at_s",
        "deadlines",
        "expired",
        "pending",
        "run",
        "skipped",
    )

    def __init__(
        self,
        run: Run,
        ordering: Ordering,
        done: Sequence[AnyRecord] = (),
        pending: Sequence[Pending] = (),
        skipped: int = 0,
    ) -> None:
        """Start with the first records of the run `done`, or `pending`."""
        self.run = run
        self._ordering = ordering
        self._done = list(done)
        self._position = run.reached = len(done) + len(pending)
        self._failures: list[tuple[AnyRecord, Failure]] = []
        self._untouched: list[AnyRecord] = []
        self._failed_keys: set[bytes] = set()
        self._is_held = False
        self._malformed = 0
        self.skipped = skipped
        self.expired: list[AnyRecord] = []
        """Records that were not delivered because they had expired, and are done by that."""
        self.breathe_at_s = 0.0
        """When an event loop is to run something else before the next record."""
        self.deadlines: Mapping[int, int] | None = None
        """Offset → when the record expires, in epoch milliseconds; None when none of them does."""
        self.pending: list[Pending] = list(pending)
        """Records whose handler returned, with what it sent and is not acknowledged yet."""

    @property
    def may_take(self) -> bool:
        """Return whether any record may still be delivered."""
        return not self._is_held and not self.run.is_cancelled

    def takes(self, record: AnyRecord) -> bool:
        """Return whether the record may be delivered now; if not, it is noted as untouched."""
        is_next = self.may_take and record.raw_key not in self._failed_keys
        if is_next:
            self.reaches_next()
        else:
            self._position += 1
            self._untouched.append(record)
        return is_next

    def reaches_next(self) -> None:
        """Record that the next record of the run is handed out."""
        self._position += 1
        self.run.reached = self._position

    def returned(self, record: AnyRecord, outcome: Any, sends: Sequence[Sent] = ()) -> None:
        """Record that the handler returned: the record is done, failed, or waits for an acknowledgement. `sends` is
        what the handler sent by itself."""
        if outcome is None and not sends:  # nearly always: looking for promises costs a sixth of a record on asyncio
            self.succeeded(record)
            return
        found = read_returned(outcome)
        if isinstance(found, Failure):
            self.failed(record, found, sends)
        else:
            self._waits(record, found or (), sends)

    def _waits(self, record: AnyRecord, returned: Sequence[Any], sends: Sequence[Sent]) -> None:
        """Keep the record open until all of this is acknowledged."""
        sent = unsettled(sends, returned) if sends else ()
        if returned or sent:
            self.pending.append((record, returned, sent))
        else:
            self.succeeded(record)

    def confirmed(self, record: AnyRecord, failure: Failure | None) -> None:
        """Settle what the record's handler sent: acknowledged, or not."""
        if failure is None:
            self._done.append(record)
        else:
            self.failed(record, failure)

    def succeeded(self, record: AnyRecord) -> None:
        self._done.append(record)
        # `done` counts a prefix of the run, read by the session at any time: a record that waits ends the prefix.
        if not self._failures and not self.pending:
            self.run.done = len(self._done)

    def has_expired(self, record: AnyRecord, outcome: Skip | Dead) -> None:
        """Record that the record expired and was not delivered. It holds back no other record."""
        if isinstance(outcome, Dead):
            self._failures.append((record, Failure.of_expiry(outcome)))
        else:
            self.expired.append(record)
            self.succeeded(record)

    def failed(self, record: AnyRecord, failure: Failure, sends: Sequence[Sent] = ()) -> None:
        """Record that the record failed; `sends` is what its handler had sent."""
        if isinstance(failure.outcome, Ack | Skip):
            self.skipped += isinstance(failure.outcome, Skip)
            self._waits(record, (), sends)
            return
        disown(sends)
        self._failures.append((record, failure))
        self._malformed += failure.kind == "malformed"
        # Even a record that is given up holds back what follows: whether there is a dead letter topic, and budget for
        # it, is decided elsewhere, and until then it may have to be delivered again in its place.
        if self._ordering is Ordering.PARTITION:
            self._is_held = True
        elif self._ordering is Ordering.KEY and record.raw_key is not None:
            self._failed_keys.add(record.raw_key)

    def result(self) -> RunResult:
        if not self._failures and not self._untouched:
            return RunResult(skipped=self.skipped, expired=self.expired)
        return RunResult(
            done=self._done,
            failures=self._failures,
            untouched=self._untouched,
            expired=self.expired,
            malformed=self._malformed,
            skipped=self.skipped,
        )
