"""What `AsyncProducer.send` returns: a promise of an acknowledgement that can be awaited.

It is not an `asyncio.Future`: most are never awaited one by one, and a future each is a good part of a send. Nothing is
allocated for waiting until somebody waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Protocol

from ottla.errors import DeliveryPending, OttlaError
from ottla.producer import DeliveryReport
from ottla.producer.deliveries import SettledDelivery
from ottla.raising import again

if TYPE_CHECKING:
    from ottla.aio.produce.reports import Reports


class BatchResult:
    """The position of an acknowledged batch, shared by its records."""

    __slots__ = ("base_offset", "partition", "timestamp_ms", "topic")

    def __init__(self, topic: str, partition: int, base_offset: int | None, timestamp_ms: int | None) -> None:
        self.topic = topic
        self.partition = partition
        self.base_offset = base_offset
        self.timestamp_ms = timestamp_ms


class Receiver(Protocol):
    """Gets the result of a record: its own delivery, or the bulk it belongs to."""

    def acknowledged(self, result: BatchResult, index: int, timestamp_ms: int) -> None: ...

    def not_delivered(self, error: OttlaError, partition: int | None, key: bytes | None) -> None: ...


class AsyncDelivery(SettledDelivery):
    """One record that was sent: `report = await delivery`. Keep it only if you want to know.

    A failure that no `await` raised is raised by the producer's next `flush` or `close`, unless it is marked as
    handled.
    """

    __slots__ = (
        "__weakref__",
        "_callbacks",
        "_error",
        "_index",
        "_owner",
        "_result",
        "_timestamp_ms",
        "_waiters",
        "failed_in",
        "key",
        "topic",
    )

    def __init__(
        self, topic: str, key: bytes | None, owner: Reports, on_delivery: Callable[[AsyncDelivery], None] | None
    ) -> None:
        self.topic = topic
        self.key = key
        self.failed_in = -1
        self._owner = owner
        self._result: BatchResult | None = None
        self._error: OttlaError | None = None
        self._waiters: list[asyncio.Future[None]] | None = None
        self._callbacks = None if on_delivery is None else [on_delivery]

    def done(self) -> bool:
        """Return whether it is settled: acknowledged or failed."""
        return self._result is not None or self._error is not None

    def __await__(self) -> Generator[asyncio.Future[None], None, DeliveryReport]:
        """Wait for the acknowledgement. Raises why the record was not delivered."""
        if not self.done():
            waiter = asyncio.get_running_loop().create_future()
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
            yield from waiter
        if self._error is not None:
            self.mark_handled()
            raise again(self._error)
        return self.report

    def exception(self) -> OttlaError | None:
        """Return the error of a settled delivery, None if it was acknowledged. Raises `DeliveryPending` while it is
        pending.

        Looking is not handling: `flush` and `close` still raise the failure.
        """
        if not self.done():
            raise DeliveryPending(f"{self.topic}: not acknowledged yet")
        return self._error

    @property
    def report(self) -> DeliveryReport:
        """Return where the record is. Only of a delivery that was acknowledged."""
        result = self._result
        if result is None:
            raise self._not_acknowledged()
        base_offset = result.base_offset
        offset = None if base_offset is None else base_offset + self._index
        timestamp_ms = self._timestamp_ms if result.timestamp_ms is None else result.timestamp_ms
        return DeliveryReport(result.topic, result.partition, offset, timestamp_ms)

    def add_done_callback(self, callback: Callable[[AsyncDelivery], None]) -> None:
        """Call `callback(delivery)` on the event loop once settled, soon if it is already."""
        if self.done():
            self._owner.run_callbacks(self, [callback])
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def acknowledged(self, result: BatchResult, index: int, timestamp_ms: int) -> None:
        """Settle the delivery by the broker's acknowledgement. The producer calls this."""
        if self._error is not None:  # given up before the answer came
            return
        self._result = result
        self._index = index
        self._timestamp_ms = timestamp_ms
        self._settled()

    def not_delivered(self, error: OttlaError, partition: int | None, key: bytes | None) -> None:
        """Settle the delivery by an error. The producer calls this."""
        if self.done():
            return
        self._error = error
        self._owner.failed(self, error, partition)
        self._settled()

    def _settled(self) -> None:
        if self._waiters is not None:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters = None
        if self._callbacks is not None:
            self._owner.run_callbacks(self, self._callbacks)
            self._callbacks = None
