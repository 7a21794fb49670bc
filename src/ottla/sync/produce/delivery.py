"""What `Producer.send` returns: a promise of an acknowledgement, resolved by the client's delivery report.

It is not a `concurrent.futures.Future`: making one costs more than sending a record. Nothing is allocated for waiting
until somebody waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ottla.errors import DeliveryPending, OttlaError
from ottla.producer import DeliveryReport
from ottla.producer.deliveries import SettledDelivery
from ottla.quantities import Span, timeout
from ottla.raising import again

if TYPE_CHECKING:
    from ottla.sync.produce.reports import ReportService

_PENDING: Final = None


class RecordDelivery(SettledDelivery):
    """The methods of a `Delivery`. A subclass has the fields."""

    if TYPE_CHECKING:  # a subclass says it at runtime, where `inspect.signature` reads the names of all bases
        topic: str
        key: bytes | None
        _owner: ReportService
        _callbacks: list[Callable[[Any], None]] | None
        _message: Any
        """The client's Message, then a DeliveryReport once someone asked for it."""
        _error: OttlaError | None
        _waiter: threading.Event | None
    else:
        __slots__ = ()

    def __call__(self, error: Any, message: Any) -> None:
        """Settle by the client's delivery report. Runs once, in whichever thread serves the client."""
        if error is not None:
            self._owner.delivery_failed(self, error, message)
            return
        self._message = message
        if self._waiter is not None:
            self._waiter.set()
        if self._callbacks is not None:
            self._owner.run_callbacks(self, self._callbacks)

    def done(self) -> bool:
        """Return whether it is settled: acknowledged or failed."""
        return self._message is not _PENDING

    @staticmethod
    def are_acknowledged(deliveries: Iterable[Delivery]) -> bool:
        """Return whether all of them are acknowledged: without a call each, which would cost a handler that sends 3 %
        of its CPU time."""
        for delivery in deliveries:  # noqa: SIM110 (a generator costs as much as the calls)
            if delivery._message is _PENDING or delivery._error is not None:
                return False
        return True

    def result(self, timeout_s: Span | None = None) -> DeliveryReport:
        """Wait for the acknowledgement. Raises why the record was not delivered, or `DeliveryPending` after
        `timeout_s`: it is still on its way then.

        Without `timeout_s` it waits for as long as the record may take: delivery.timeout.ms.
        """
        error = self.exception(timeout_s)
        if error is not None:
            if not self._owner.is_calling_back:  # out of a callback it goes to the log, and to nobody who sent
                self.mark_handled()
            raise again(error)
        return self.report

    def exception(self, timeout_s: Span | None = None) -> OttlaError | None:
        """Wait, then give the error, or None when the record was acknowledged. Raises `DeliveryPending` after
        `timeout_s`.

        Looking is not handling: `flush` and `close` still raise the failure.
        """
        if self._message is _PENDING:
            self._wait(timeout_s)
        return self._error

    @property
    def report(self) -> DeliveryReport:
        """Return the record's position in its topic. Valid only for an acknowledged delivery."""
        message = self._message
        if isinstance(message, DeliveryReport):
            return message
        if message is _PENDING or self._error is not None:
            raise self._not_acknowledged()
        offset = message.offset()
        _, timestamp = message.timestamp()
        report = DeliveryReport(
            message.topic(),
            message.partition(),
            offset if offset is not None and offset >= 0 else None,
            timestamp if timestamp >= 0 else None,
        )
        self._message = report  # releases the client's copy of the record
        return report

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call `callback(delivery)` in the producer's own thread once settled, at once if it is already."""
        callbacks = self._callbacks
        if callbacks is None:
            callbacks = self._callbacks = []
        callbacks.append(callback)
        if self._message is not _PENDING:
            self._owner.run_callbacks(self, callbacks)

    def _wait(self, timeout_s: Span | None) -> None:
        # The waiter is stored before the state is read again, and the report stores the state before it reads the
        # waiter: whichever comes second sees the other. Of two threads that wait at once the first may lose its waiter
        # to the second, which is why nobody waits for longer than half a second without looking.
        limit_s = self._owner.longest_wait_s if timeout_s is None else timeout(self.topic, timeout_s)
        waiter = self._waiter
        if waiter is None:
            waiter = self._waiter = threading.Event()
        owner = self._owner
        owner.someone_waits()
        deadline = time.monotonic() + limit_s
        while self._message is _PENDING:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise DeliveryPending(f"{self.topic}: not acknowledged after {limit_s:g} s; it is still being tried")
            if not owner.serve_here(min(left_s, 0.05)):
                waiter.wait(min(left_s, 0.5))


class Delivery(RecordDelivery, msgspec.Struct, eq=False, weakref=True):
    """One record that was sent. Thread-safe; keep it only if you want to know.

    A failure that `result` did not raise is raised by the producer's next `flush` or `close`, unless it is marked as
    handled.
    """

    # A struct, as one is made in a third of the time that `__init__` takes: 0.13 µs less for each send.
    topic: str
    key: bytes | None
    _owner: Any
    _callbacks: Any = None
    _message: Any = _PENDING
    _error: Any = None
    _waiter: Any = None
    failed_in: int = -1
    """Which flush of its producer reports the failure; -1 once it is handled."""


class TracedDelivery(Delivery, kw_only=True, eq=False):
    """A delivery with a span, which ends when it is settled."""

    span: Any

    def __call__(self, error: Any, message: Any) -> None:
        if error is None:
            self.span.delivered(message.partition(), message.offset())
        super().__call__(error, message)


def pending(deliveries: Iterable[Any]) -> list[Any]:
    """Return those that are not settled: of `Delivery` and `Bulk`, without a call each."""
    return [delivery for delivery in deliveries if delivery._message is _PENDING]
