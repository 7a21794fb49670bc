"""What was sent and is not yet acknowledged, and what failed: so that no failure can be silent.

A failed record is raised at least once: out of its delivery's `result()` or `await`, or else out of the next `flush`
or `close`. Looking does not count: code that logs `delivery.exception()` in a callback and goes on after a flush would
lose the record. Whoever deals with a failure without raising it says so: `delivery.mark_handled()`.

Pure bookkeeping. Adding happens in the sending threads without a lock (`deque.append` is atomic), sweeping in one
thread at a time; failures are rare and take a lock.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from ottla.errors import DeliveryError, OttlaError, RetriableError, UndeliveredRecord
from ottla.telemetry import log_event


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """The position of an acknowledged record. `offset` is None when the broker did not say (acks=0)."""

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int | None
    """Milliseconds since the epoch: when the record was made or, with `LogAppendTime`, appended."""


HANDLED: Final = -2
"""`failed_in` of a delivery whose failure was raised to a caller, or dealt with."""


class Tracked(Protocol):
    """The parts of a delivery that the tracker uses."""

    failed_in: int
    """Between which two flushes it failed. Set by the tracker, on failures that it counts without keeping them; and
    `HANDLED`."""

    @property
    def topic(self) -> str: ...

    @property
    def key(self) -> bytes | None: ...

    def done(self) -> bool: ...


class SettledDelivery:
    """Base of both shells' deliveries: the result of a settled record."""

    __slots__ = ()
    topic: str
    _error: OttlaError | None
    _owner: Any
    failed_in: int

    def done(self) -> bool:
        """Return whether it is settled: acknowledged or failed."""
        raise NotImplementedError

    @property
    def report(self) -> DeliveryReport:
        """Return where the record is. Only of a delivery that was acknowledged."""
        raise NotImplementedError

    def mark_handled(self) -> None:
        """Mark the failure as handled (the record was sent elsewhere, say): `flush` and `close` need not raise it.

        A transaction that the record belongs to cannot be committed all the same.
        """
        if self._error is not None:
            self._owner.tracker.was_raised(self)

    @property
    def is_handled(self) -> bool:
        """Return whether its failure was raised to a caller, or marked as handled."""
        return getattr(self, "failed_in", None) == HANDLED

    def is_kept_in(self, tracker: DeliveryTracker[Any]) -> bool:
        """Return whether the next flush of this tracker's producer raises its failure."""
        return self._owner.tracker is tracker and tracker.failure_of(self) is not None

    def _not_acknowledged(self) -> RetriableError:
        return RetriableError(f"{self.topic}: not acknowledged{'' if self._error is None else f': {self._error}'}")

    def __repr__(self) -> str:
        if not self.done():
            return f"<Delivery to {self.topic}: pending>"
        if self._error is not None:
            return f"<Delivery to {self.topic}: failed: {self._error}>"
        return f"<Delivery to {self.topic}-{self.report.partition}@{self.report.offset}>"


D = TypeVar("D", bound=Tracked)


@dataclass(frozen=True, slots=True)
class DeliveryFailure:
    """One record that was not delivered: what to list, and the error as the waiting caller would get it."""

    record: UndeliveredRecord
    error: OttlaError


class DeliveryTracker(Generic[D]):
    """Outstanding deliveries, oldest first, and the failures that were not raised yet."""

    KEEP_FAILURES: Final = 1_000
    """Failures kept in full until someone flushes. Those beyond are counted, so that memory stays bounded."""

    def __init__(self, pending: Callable[[Iterable[D]], list[D]] | None = None) -> None:
        """`pending` picks those that are not done, where asking each of them would cost too much."""
        self.outstanding: deque[D] = deque()
        """Hot paths append to it. It may hold deliveries that are done, until they are swept."""
        self._pending = _not_done if pending is None else pending
        self._sweeping = threading.Lock()
        self._lock = threading.Lock()
        self._failures: dict[int, tuple[D, DeliveryFailure]] = {}
        self._failures_beyond = 0
        self._flushes = 0
        self.on_settled: Callable[[Sequence[D]], None] | None = None
        """Called with what a sweep found to be done."""
        self.on_failure: Callable[[DeliveryFailure], None] | None = None
        """Called with every failure as well, in the thread that reports it: what a transaction needs to know."""

    def sweep(self, most: int = 512) -> None:
        """Forget deliveries that are done, looking at the `most` oldest. Unfinished ones move to the end of the line.

        Called every few hundred sends, this keeps the line about as long as there are unfinished deliveries, also when
        one partition is stuck and the others go on.
        """
        if not self._sweeping.acquire(blocking=False):  # another thread does it
            return
        try:
            outstanding = self.outstanding
            popleft = outstanding.popleft
            oldest = [popleft() for _ in range(min(most, len(outstanding)))]
            pending = self._pending(oldest)
            outstanding.extend(pending)
            if self.on_settled is not None and len(pending) < len(oldest):
                settled = len(oldest) - len(pending)
                if oldest[settled:] == pending:  # in order, as nearly always: 0.01 µs each, and 0.1 µs otherwise
                    self.on_settled(oldest[:settled])
                else:
                    ids = set(map(id, pending))
                    self.on_settled([each for each in oldest if id(each) not in ids])
        finally:
            self._sweeping.release()

    def sweep_in_passing(self, most: int, *, unfinished: int) -> None:
        """Sweep, if the `most` oldest deliveries are probably done, or the line is more than twice as long as it must
        be: `unfinished` is how many records are not settled.

        If no partition is far behind the others, each delivery is checked once. Sweeping each time took a tenth of the
        CPU of a handler that sends.
        """
        try:
            is_due = self.outstanding[most - 1].done() or len(self.outstanding) > 2 * unfinished + most
        except IndexError:  # fewer, or another thread has swept
            return
        if is_due:
            self.sweep(most)

    def unfinished(self) -> list[D]:
        """Return the deliveries that are not done."""
        with self._sweeping:  # what a sweep has in its hands is not in the line
            return self._pending(self.outstanding.copy())

    def failed(self, delivery: D, failure: DeliveryFailure) -> None:
        """Keep the failure of a record until it is raised."""
        if self.on_failure is not None:
            self.on_failure(failure)
        with self._lock:
            if len(self._failures) < self.KEEP_FAILURES:
                self._failures[id(delivery)] = (delivery, failure)  # kept alive: its id stays its own
            else:
                self._failures_beyond += 1
                delivery.failed_in = self._flushes

    def was_raised(self, delivery: D) -> None:
        """Forget this delivery's failure, which was raised to a caller or handled, so that flush does not raise it.
        Once each: another failure must not be forgotten in its place."""
        with self._lock:
            is_kept = self._failures.pop(id(delivery), None) is not None
            if not is_kept and getattr(delivery, "failed_in", -1) == self._flushes:
                self._failures_beyond -= 1
            delivery.failed_in = HANDLED

    def failure_of(self, delivery: D) -> DeliveryFailure | None:
        """Return the failure of this delivery, if it failed and was not raised yet."""
        with self._lock:
            kept = self._failures.get(id(delivery))
        return None if kept is None else kept[1]

    def take_failures(self) -> tuple[list[DeliveryFailure], int]:
        """Return (kept failures, number of all failures) since the last call."""
        with self._lock:
            failures = [failure for _, failure in self._failures.values()]
            total = len(failures) + self._failures_beyond
            self._failures.clear()
            self._failures_beyond = 0
            self._flushes += 1
        return failures, total


def delivery_error(
    failures: list[DeliveryFailure], total: int, still_out: list[UndeliveredRecord], *, cause: OttlaError | None = None
) -> DeliveryError | None:
    """Return the error that `flush` raises: the failures, then the records that are not acknowledged yet. None if there
    are neither."""
    if not total and not still_out:
        return None
    undelivered = [failure.record for failure in failures] + still_out
    error = DeliveryError(undelivered[: DeliveryTracker.KEEP_FAILURES], total=total + len(still_out))
    error.__cause__ = failures[0].error if failures else cause
    return error


def log_failed_callback(delivery: Tracked, error: BaseException) -> None:
    """Log that a caller's callback of a delivery has raised."""
    fields = {"topic": delivery.topic, "error": repr(error), "exc_info": error}
    log_event("delivery_callback_failed", "error", fields)


def unsettled(unfinished: Iterable[Tracked], reason: str) -> list[UndeliveredRecord]:
    """Return the records of deliveries that are not settled; a bulk has several."""
    return [
        UndeliveredRecord(topic=delivery.topic, partition=None, key=delivery.key, error=reason)
        for delivery in unfinished
        for _ in range(getattr(delivery, "pending", 1))
    ]


def _not_done(deliveries: Iterable[D]) -> list[D]:
    return [delivery for delivery in deliveries if not delivery.done()]
