"""Many records to one topic with one delivery: no object per record, and back-pressure in the loop that sends them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator

from ottla.aio.produce.delivery import BatchResult
from ottla.aio.produce.reports import Reports
from ottla.errors import OttlaError
from ottla.producer.bulk import BulkState, FailedPart


class AsyncBulk(BulkState):
    """The delivery of many records: `acknowledged = await bulk`.

    Failures that it does not raise are raised by the producer's next flush.
    """

    def __init__(self, topic: str, owner: Reports) -> None:
        super().__init__(topic, owner.tracker)
        self._owner = owner
        self._settled = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._callbacks: list[Callable[[AsyncBulk], None]] = []

    @property
    def pending(self) -> int:
        """Records that are not settled yet."""
        return self.sent - self._settled

    def done(self) -> bool:
        """Return whether every record is settled."""
        return self._all_sent and self._settled >= self.sent

    def __await__(self) -> Generator[asyncio.Future[None], None, int]:
        """Wait until every record is settled; the number acknowledged. Raises DeliveryError with those that failed."""
        if not self.done():
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            yield from waiter
        error = self.exception()
        if error is not None:
            self.mark_handled()
            raise error
        return self.sent

    def add_done_callback(self, callback: Callable[[AsyncBulk], None]) -> None:
        """Call `callback(bulk)` on the event loop once every record is settled, at once if they are already."""
        if self.done():
            self._owner.run_callbacks(self, [callback])
        else:
            self._callbacks.append(callback)

    def acknowledged(self, result: BatchResult, index: int, timestamp_ms: int) -> None:
        """Count a record that the broker acknowledged. The producer calls this."""
        self._settled += 1
        self._is_over()

    def not_delivered(self, error: OttlaError, partition: int | None, key: bytes | None) -> None:
        """Count a record that failed. The producer calls this."""
        part = FailedPart(self.topic, key)
        self._failed.append((part, self._owner.failed(part, error, partition)))
        self._settled += 1
        self._is_over()

    def exception(self) -> OttlaError | None:
        """Return the failures of a bulk that is settled. Looking is not handling."""
        return self._error()

    def _is_over(self) -> None:
        if self._callbacks and self.done():
            callbacks, self._callbacks = self._callbacks, []
            self._owner.run_callbacks(self, callbacks)
        if self._waiters and self.done():
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters.clear()
