"""Records on their way to Kafka, seen from one thread: a road's event loop.

`send` hands a record to the producer, whose own thread reports what became of it. Reports are collected, and `drain`
runs in the road's thread once for many of them: waking a loop for each would cost more than the record.

The producer is librdkafka's (`ottla.sync`). A record on asyncio costs several times the processor time, and the rate of
the listener is the rate of this call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.clock import Clock, SystemClock
from ottla.errors import OttlaError
from ottla.records import Header
from ottla.sync.produce.delivery import RecordDelivery
from ottla.sync.produce.own_deliveries import OwnDelivery, send_delivery, takes_deliveries
from ottla.sync.produce.producer import Producer

NEEDED_SETTINGS: Final[Mapping[str, Any]] = {
    "acks": "all",
    "enable.idempotence": True,
    # A record is never given up for being late: its publisher has no acknowledgement, and waits.
    "delivery.timeout.ms": 2**31 - 1,
}
"""Producer settings of a bridge, which its guarantees need."""

SINK_DEFAULTS: Final[Mapping[str, Any]] = {
    # Publishers wait for their acknowledgements: a small delay fills batches at high rates.
    "linger.ms": 5,
    "topic.metadata.propagation.max.ms": 5_000,
}

_OVERHEAD_BYTES: Final = 800
"""What a record in flight takes beside its bytes: its objects here, and librdkafka's."""
_HEADER_OVERHEAD_BYTES: Final = 100
_QOS0_SHARE: Final = 0.8


def sink_settings(given: Mapping[str, Any], *, max_bytes: int) -> dict[str, Any]:
    """Return the producer's settings. Its buffer holds what a sink lets out, so that `send` never blocks."""
    room = {"buffer.memory": max(67_108_864, 4 * max_bytes), "queue.buffering.max.messages": 0, "max.block.ms": 0}
    return {**SINK_DEFAULTS, **given, **room, **NEEDED_SETTINGS}


class Outbound(OwnDelivery):
    """One record on its way. `acknowledged` or `failed` is called once, in the road's thread."""

    __slots__ = ("_sink", "sent_ms", "size_bytes")

    def __init__(self, sink: Sink, topic: str, key: bytes | None) -> None:
        self._sink = sink
        self.size_bytes = self.sent_ms = 0
        # As the base class does it, whose call costs as much as these assignments.
        self.topic = topic
        self.key = key
        self._owner = sink.reports
        self._message: Any = None
        self._error: OttlaError | None = None
        self._waiter = None
        self._callbacks = None

    def acknowledged(self) -> None:
        """Do what is to be done once Kafka has the record."""
        raise NotImplementedError

    def failed(self, error: OttlaError) -> None:
        """Do what is to be done when it is not known to have it."""
        raise NotImplementedError

    def __call__(self, error: Any, message: Any) -> None:
        """Take the client's report. Runs in the producer's thread, or in the road's in passing."""
        if error is None:
            self._message = message
            self._sink._report(self)
        else:
            self._callbacks = [self.settled_with]
            super().__call__(error, message)

    def settled_with(self, delivery: RecordDelivery) -> None:
        """Take the outcome of a delivery: of itself, or of the one with which it was sent."""
        self._error = delivery._error
        if self._error is not None:
            delivery.mark_handled()
        self._sink._report(self)


class Sink:
    """The records of one road. All methods but `_report` belong to the road's thread."""

    def __init__(
        self,
        producer: Producer[Any, Any],
        wake: Callable[[Callable[[], None]], object],
        *,
        max_records: int,
        max_bytes: int,
        clock: Clock | None = None,
    ) -> None:
        self._producer = producer
        self._wake = wake
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._now_ms = (clock or SystemClock()).monotonic_ms
        self._bytes = 0
        self._unsettled: dict[Outbound, None] = {}
        """In the order in which they were sent. Not a queue: one partition may be stuck while others go on."""
        self._settled: deque[Outbound] = deque()
        self._is_woken = False
        self.reports = producer._reports
        self.after_drain: Callable[[], None] = lambda: None
        """Called in the road's thread after reports were handled: there may be room again."""

    @property
    def in_flight(self) -> int:
        """Return the number of records that are not settled."""
        return len(self._unsettled)

    @property
    def bytes_in_flight(self) -> int:
        """Return their size in bytes."""
        return self._bytes

    @property
    def is_full(self) -> bool:
        """Return whether nothing more may be sent until something is settled."""
        return self._bytes >= self._max_bytes or len(self._unsettled) >= self._max_records

    @property
    def is_full_for_qos0(self) -> bool:
        """Return whether QoS 0 messages are dropped: the last fifth of the room is for the others."""
        return self._bytes >= self._max_bytes * _QOS0_SHARE or len(self._unsettled) >= self._max_records * _QOS0_SHARE

    @property
    def oldest_ms(self) -> int:
        """Return how long the oldest record that is not settled has been on its way, in milliseconds. In any thread."""
        while True:
            try:
                oldest = next(iter(self._unsettled), None)
            except RuntimeError:  # the road's thread changed it in between
                continue
            return 0 if oldest is None else max(0, self._now_ms() - oldest.sent_ms)

    @property
    def problems(self) -> tuple[str, ...]:
        """Return the topics whose records brokers do not take for now, and why."""
        found: tuple[str, ...] = self._producer._problems
        return found

    def send(self, record: Outbound, value: bytes, headers: list[Header], most_bytes: int) -> None:
        """Send one record, of at most `most_bytes` as `checked_headers` counts them."""
        record.size_bytes = most_bytes + _OVERHEAD_BYTES + len(headers) * _HEADER_OVERHEAD_BYTES
        record.sent_ms = self._now_ms()
        self._bytes += record.size_bytes
        self._unsettled[record] = None
        producer = self._producer
        try:
            if takes_deliveries(producer):
                send_delivery(producer, record, value, headers, most_bytes)
            else:
                producer.send(
                    record.topic, value, key=record.key, headers=headers, on_delivery=record.settled_with, detached=True
                )
        except OttlaError as error:
            record._error = error
            self._report(record)

    def drain(self) -> None:
        """Handle the reports that came."""
        self._is_woken = False  # before the first is taken: one that comes now wakes again
        settled, unsettled = self._settled, self._unsettled
        while settled:
            record = settled.popleft()
            del unsettled[record]
            self._bytes -= record.size_bytes
            if record._error is None:
                record.acknowledged()
            else:
                record.failed(record._error)
        self.after_drain()

    def _report(self, record: Outbound) -> None:
        self._settled.append(record)
        if not self._is_woken:
            self._is_woken = True
            try:
                self._wake(self.drain)
            except RuntimeError:
                pass  # the loop has ended, and its connections with it
