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

from ottla.bridge.mapping.rules import OutRecord
from ottla.clock import Clock, SystemClock
from ottla.errors import OttlaError
from ottla.sync.produce.delivery import Delivery
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

_OVERHEAD_BYTES: Final = 200
_HEADER_OVERHEAD_BYTES: Final = 100
_QOS0_SHARE: Final = 0.8

Done = Callable[[OttlaError | None], None]


def sink_settings(given: Mapping[str, Any], *, max_bytes: int) -> dict[str, Any]:
    """Return the producer's settings. Its buffer holds what a sink lets out, so that `send` never blocks."""
    room = {"buffer.memory": max(67_108_864, 4 * max_bytes), "queue.buffering.max.messages": 0, "max.block.ms": 0}
    return {**SINK_DEFAULTS, **given, **room, **NEEDED_SETTINGS}


class _Pending:
    """One record on its way. It is its own delivery callback."""

    __slots__ = ("_sink", "done", "error", "is_settled", "sent_ms", "size_bytes")

    def __init__(self, sink: Sink, size_bytes: int, sent_ms: int, done: Done) -> None:
        self._sink = sink
        self.size_bytes = size_bytes
        self.sent_ms = sent_ms
        self.done = done
        self.error: OttlaError | None = None
        self.is_settled = False

    def __call__(self, delivery: Delivery) -> None:
        """Runs in the producer's thread."""
        self.error = delivery._error
        if self.error is not None:
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
        self._records = 0
        self._bytes = 0
        self._order: deque[_Pending] = deque()
        self._settled: deque[_Pending] = deque()
        self._is_woken = False
        self.after_drain: Callable[[], None] = lambda: None
        """Called in the road's thread after reports were handled: there may be room again."""

    @property
    def in_flight(self) -> int:
        """Return the number of records that are not settled."""
        return self._records

    @property
    def bytes_in_flight(self) -> int:
        """Return their size in bytes."""
        return self._bytes

    @property
    def is_full(self) -> bool:
        """Return whether nothing more may be sent until something is settled."""
        return self._records >= self._max_records or self._bytes >= self._max_bytes

    @property
    def is_full_for_qos0(self) -> bool:
        """Return whether QoS 0 messages are dropped: the last fifth of the room is for the others."""
        return self._records >= self._max_records * _QOS0_SHARE or self._bytes >= self._max_bytes * _QOS0_SHARE

    @property
    def oldest_ms(self) -> int:
        """Return how long the oldest record that is not settled has been on its way, in milliseconds."""
        try:
            return max(0, self._now_ms() - self._order[0].sent_ms)
        except IndexError:
            return 0

    @property
    def problems(self) -> tuple[str, ...]:
        """Return the topics whose records brokers do not take for now, and why."""
        found: tuple[str, ...] = self._producer._problems
        return found

    def send(self, record: OutRecord, done: Done) -> None:
        """Send one record. `done` is called with the error, or None, later and in the road's thread."""
        size_bytes = len(record.value) + len(record.key or b"") + _OVERHEAD_BYTES
        for name, value in record.headers:
            size_bytes += len(name) + len(value or b"") + _HEADER_OVERHEAD_BYTES
        pending = _Pending(self, size_bytes, self._now_ms(), done)
        self._records += 1
        self._bytes += size_bytes
        self._order.append(pending)
        try:
            self._producer.send(
                record.topic, record.value, key=record.key, headers=record.headers, on_delivery=pending, detached=True
            )
        except OttlaError as error:
            pending.error = error
            self._report(pending)

    def drain(self) -> None:
        """Handle the reports that came."""
        self._is_woken = False  # before the first is taken: one that comes now wakes again
        settled = self._settled
        while settled:
            pending = settled.popleft()
            self._records -= 1
            self._bytes -= pending.size_bytes
            pending.is_settled = True
            pending.done(pending.error)
        order = self._order
        while order and order[0].is_settled:
            order.popleft()
        self.after_drain()

    def _report(self, pending: _Pending) -> None:
        self._settled.append(pending)
        if not self._is_woken:
            self._is_woken = True
            try:
                self._wake(self.drain)
            except RuntimeError:
                pass  # the loop has ended, and its connections with it
