"""Many records to one topic with one delivery: no object per record, and back-pressure in the loop that sends them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator

from ottla.aio.produce.delivery import BatchResult
from ottla.aio.produce.reports import Reports
from ottla.errors import OttlaError
from ottla.producer import Failure, delivery_error
from ottla.producer.bulk import FailedPart


class Bulk:
    """The delivery of many records: `acknowledged = await bulk`.

    Failures that it does not raise are raised by the producer's next flush.
    """

    key = None  # what the tracker lists of records that are not settled
    failed_in = -1  # a bulk fails by its parts, each of which is counted by itself

    def __init__(self, topic: str, owner: Reports) -> None:
        self.topic = topic
        self.sent = 0
        """Records handed to the buffer, once `send_many` has returned."""
        self._owner = owner
        self._settled = 0
        self._all_sent = False
        self._failed: list[tuple[FailedPart, Failure]] = []
        self._waiters: list[asyncio.Future[None]] = []
        self.on_end: Callable[[Bulk], None] | None = None
        """Called once all are settled."""

    @property
    def pending(self) -> int:
        """Records that are not settled yet."""
        return self.sent - self._settled

    def done(self) -> bool:
        """Whether every record is settled."""
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

    def mark_handled(self) -> None:
        """The failures are dealt with: `flush` and `close` need not raise them."""
        for part, _ in self._failed:
            self._owner.tracker.was_raised(part)

    def acknowledged(self, result: BatchResult, index: int, timestamp_ms: int) -> None:
        self._settled += 1
        self._wake()

    def not_delivered(self, error: OttlaError, partition: int | None, key: bytes | None) -> None:
        part = FailedPart(self.topic, key)
        self._failed.append((part, self._owner.failed(part, error, partition)))
        self._settled += 1
        self._wake()

    def all_sent(self, sent: int) -> None:
        """No more records come."""
        self.sent = sent
        self._all_sent = True
        self._wake()

    def exception(self) -> OttlaError | None:
        """The failures of a bulk that is settled. Looking is not handling."""
        return delivery_error([failure for _, failure in self._failed], len(self._failed), [])

    def _wake(self) -> None:
        if self.on_end is not None and self.done():
            on_end, self.on_end = self.on_end, None
            on_end(self)
        if self._waiters and self.done():
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters.clear()
