"""What was sent and is not yet acknowledged, and what failed: so that no failure can be silent (P5).

A failed record is reported at least once: to whoever waits for its delivery, or else by the next `flush` or `close`.
A callback does not count as a report: code that logs a failure in a callback and commits after a flush would lose it.

Pure bookkeeping. Adding happens in the sending threads without a lock (`deque.append` is atomic), sweeping in one
thread at a time; failures are rare and take a lock.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from ottla.errors import DeliveryError, OttlaError, UndeliveredRecord

__all__ = ["DeliveryReport", "DeliveryTracker", "Failure", "Tracked", "delivery_error", "unsettled"]


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """Where an acknowledged record is. `offset` is None when the broker did not say (acks=0)."""

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int | None


class Tracked(Protocol):
    """What the tracker needs to know about a delivery."""

    @property
    def topic(self) -> str: ...

    @property
    def key(self) -> bytes | None: ...

    def done(self) -> bool: ...


D = TypeVar("D", bound=Tracked)


@dataclass(frozen=True, slots=True)
class Failure:
    """One record that was not delivered: what to list, and the error as the waiting caller would get it."""

    record: UndeliveredRecord
    error: OttlaError


class DeliveryTracker(Generic[D]):
    """Outstanding deliveries, oldest first, and the failures that nobody has heard of yet."""

    KEEP_FAILURES: Final = 1_000
    """Failures kept in full until someone flushes. Those beyond are counted, so that memory stays bounded."""

    def __init__(self, pending: Callable[[Iterable[D]], list[D]] | None = None) -> None:
        """`pending` picks those that are not done, where asking each of them would cost too much."""
        self.outstanding: deque[D] = deque()
        """Hot paths append to it. It may hold deliveries that are done, until they are swept."""
        self._pending = _not_done if pending is None else pending
        self._sweeping = threading.Lock()
        self._lock = threading.Lock()
        self._failures: dict[int, tuple[D, Failure]] = {}
        self._failures_beyond = 0

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
            outstanding.extend(self._pending(oldest))
        finally:
            self._sweeping.release()

    def unfinished(self) -> list[D]:
        """The deliveries that are not done."""
        with self._sweeping:  # what a sweep has in its hands is not in the line
            return self._pending(self.outstanding.copy())

    def failed(self, delivery: D, failure: Failure) -> None:
        """A record was not delivered, and nobody has been told yet."""
        with self._lock:
            if len(self._failures) < self.KEEP_FAILURES:
                self._failures[id(delivery)] = (delivery, failure)  # kept alive: its id stays its own
            else:
                self._failures_beyond += 1

    def was_raised(self, delivery: D) -> None:
        """The failure of this delivery reached a caller as an exception: flush need not repeat it."""
        with self._lock:
            if self._failures.pop(id(delivery), None) is None and self._failures_beyond:
                self._failures_beyond -= 1

    def failure_of(self, delivery: D) -> Failure | None:
        """The failure of this delivery, if it failed and nobody has heard of it."""
        with self._lock:
            kept = self._failures.get(id(delivery))
        return None if kept is None else kept[1]

    def take_failures(self) -> tuple[list[Failure], int]:
        """(kept failures, number of all failures) since the last call."""
        with self._lock:
            failures = [failure for _, failure in self._failures.values()]
            total = len(failures) + self._failures_beyond
            self._failures.clear()
            self._failures_beyond = 0
        return failures, total


def delivery_error(
    failures: list[Failure], total: int, still_out: list[UndeliveredRecord], *, cause: OttlaError | None = None
) -> DeliveryError | None:
    """What `flush` raises: the failures, then what is not acknowledged yet. None when there is neither."""
    if not total and not still_out:
        return None
    undelivered = [failure.record for failure in failures] + still_out
    error = DeliveryError(undelivered[: DeliveryTracker.KEEP_FAILURES], total=total + len(still_out))
    error.__cause__ = failures[0].error if failures else cause
    return error


def unsettled(unfinished: Iterable[Tracked], reason: str) -> list[UndeliveredRecord]:
    """The records of deliveries that are not settled; a bulk has several."""
    return [
        UndeliveredRecord(topic=delivery.topic, partition=None, key=delivery.key, error=reason)
        for delivery in unfinished
        for _ in range(getattr(delivery, "pending", 1))
    ]


def _not_done(deliveries: Iterable[D]) -> list[D]:
    return [delivery for delivery in deliveries if not delivery.done()]
