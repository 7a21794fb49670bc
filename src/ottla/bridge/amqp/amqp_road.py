"""The consumer of an AMQP 0-9-1 queue: its messages go to Kafka, and are acknowledged once Kafka has them.

pika's `SelectConnection` runs in a thread of its own. The prefetch is the window: RabbitMQ sends no more than so many
messages that are not acknowledged. One `basic.ack` with `multiple` acknowledges the contiguous prefix that Kafka took.

Delivery tags belong to a channel. When it is gone, RabbitMQ delivers again what was not acknowledged, and what Kafka
settles later acknowledges nothing: the same numbers mean other messages on the next channel. A long outage of Kafka
keeps the channel open and waits; it does not reconnect, because a quorum queue counts each redelivery.
"""

from __future__ import annotations

import importlib
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ottla.bridge.acknowledger import OrderedAcknowledger, Slot
from ottla.bridge.amqp.amqp_messages import Envelope, envelope_of
from ottla.bridge.amqp.delivery_reader import CONSUMER_TAG, DeliveryReader
from ottla.bridge.forwarding.counts import BridgeCounts
from ottla.bridge.forwarding.forwarder import REGISTRY_AGAIN_S, Forwarder
from ottla.bridge.forwarding.sink import Sink
from ottla.bridge.reconnects import FIRST_PAUSE_S, next_pause_s
from ottla.bridge.source_urls import SourceUrl
from ottla.errors import RegistryUnavailable
from ottla.telemetry import log_event

_HEARTBEAT_S: Final = 30
_BLOCKED_S: Final = 600
_DRAIN_EVERY_S: Final = 0.2


class AmqpRoad:
    """One queue, over one connection at a time. `open` starts its thread."""

    def __init__(
        self,
        url: SourceUrl,
        queue: str,
        *,
        counts: BridgeCounts,
        prefetch: int,
    ) -> None:
        self._pika: Any = importlib.import_module("pika")
        self._io: Any = importlib.import_module("ottla.bridge.amqp.pika_io").InterceptedIO
        self._url = url
        self._queue = queue
        self._prefetch = prefetch
        self._tls = ssl.create_default_context() if url.is_tls else None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._drain_s = 0.0
        self._connection: Any = None
        self._channel: Any = None
        self._acks = OrderedAcknowledger()
        self._ack_to = 0
        self._reader: DeliveryReader[Envelope] | None = None
        self._held: deque[tuple[Envelope, bytes, Slot]] = deque()
        """Messages that are not forwarded yet."""
        self._awaits_room = False
        self.sink: Sink
        self.forwarder: Forwarder
        self.counts = counts
        self.problem: str | None = f"{url}: not connected yet"
        """Why no messages come in, or None while they do."""
        self._queue_problem: str | None = None
        """Why the bridge itself closed the connection."""
        self._consuming_s: float | None = None
        """When messages could come in over this connection, by the monotonic clock."""

    @property
    def is_alive(self) -> bool:
        """Return whether its thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def wake(self, work: Callable[[], None]) -> None:
        """Run `work` in the road's thread. Without a connection it runs once there is one."""
        connection = self._connection
        if connection is not None:
            try:
                connection.ioloop.add_callback_threadsafe(work)
            except Exception:  # pika's loop has just been closed: the pause that follows drains
                pass

    def open(self) -> None:
        """Start the thread."""
        self.sink.after_drain = self._after_drain
        self._thread = threading.Thread(target=self._run, name="ottla-bridge-amqp", daemon=True)
        self._thread.start()

    def close(self, drain_s: float) -> None:
        """Take no more messages, wait for those in flight, acknowledge them, and close the connection."""
        self._drain_s = drain_s
        self._stopping.set()
        self.wake(self._begin_stop)
        if self._thread is not None:
            self._thread.join(drain_s + 10)

    # In the road's thread

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._stopping.is_set():
            self._consuming_s = None
            try:
                self._connection = self._pika.SelectConnection(
                    self._parameters(),
                    on_open_callback=self._opened,
                    on_open_error_callback=self._not_opened,
                    on_close_callback=self._closed,
                    custom_ioloop=self._io(self._reading),
                )
                self._connection.ioloop.start()
            except Exception as error:  # pika raises what its callbacks and the socket raise
                self.problem = f"{self._url}: {error_text(error)}"
            self._void()
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.ioloop.close()
            served_s = 0.0 if self._consuming_s is None else time.monotonic() - self._consuming_s
            pause_s = next_pause_s(pause_s, served_s=served_s)
            if not self._stopping.is_set():
                log_event("bridge_source_lost", "warning", {"source": str(self._url), "reason": self.problem})
            self._pause(pause_s)

    def _pause(self, pause_s: float) -> None:
        """Wait before the next connection. Reports of Kafka are handled meanwhile."""
        while not self._stopping.is_set() and pause_s > 0:
            self.sink.drain()
            self._stopping.wait(min(pause_s, _DRAIN_EVERY_S))
            pause_s -= _DRAIN_EVERY_S

    def _parameters(self) -> Any:
        pika, url = self._pika, self._url
        login = pika.PlainCredentials(url.username or "guest", url.password or "guest")
        return pika.ConnectionParameters(
            host=url.host,
            port=url.port,
            virtual_host=url.path.removeprefix("/") or "/",
            credentials=login,
            heartbeat=_HEARTBEAT_S,
            blocked_connection_timeout=_BLOCKED_S,
            ssl_options=None if self._tls is None else pika.SSLOptions(self._tls, url.host),
            client_properties={"product": "ottla bridge"},
        )

    def _reading(self, pass_on: Callable[[bytes], Any]) -> Callable[[bytes], None]:
        """Return the function that takes what comes from the socket; pika takes the rest."""
        self._reader = reader = DeliveryReader(envelope_of=envelope_of, deliver=self._deliver, pass_on=pass_on)

        def received(data: bytes) -> None:
            self._connection.bytes_received += len(data)  # else pika misses heartbeats while deliveries come
            reader.feed(data)

        return received

    def _opened(self, connection: Any) -> None:
        connection.add_on_connection_blocked_callback(self._blocked)
        connection.add_on_connection_unblocked_callback(self._unblocked)
        connection.channel(on_open_callback=self._channel_opened)

    def _not_opened(self, connection: Any, error: Any) -> None:
        self.problem = f"{self._url}: {error_text(error)}"
        connection.ioloop.stop()

    def _closed(self, connection: Any, reason: Any) -> None:
        self.problem, self._queue_problem = self._queue_problem or f"{self._url}: {reason}", None
        connection.ioloop.stop()

    def _channel_opened(self, channel: Any) -> None:
        self._channel = channel
        self._acks = OrderedAcknowledger()
        self._ack_to = 0
        self._queue_problem = None
        channel.add_on_close_callback(self._channel_closed)
        channel.add_on_cancel_callback(self._cancelled)
        channel.basic_qos(prefetch_count=self._prefetch, callback=self._consume)
        self.sink.drain()  # what was reported while there was no connection

    def _channel_closed(self, channel: Any, reason: Any) -> None:
        self._lost_queue(str(reason))

    def _cancelled(self, _: Any) -> None:
        """Take the broker's cancel of the consumer: its queue was deleted, or moves to another node."""
        self._lost_queue("the broker has cancelled its consumer")

    def _lost_queue(self, reason: str) -> None:
        if self._queue_problem is None:  # keep the first reason: the close that follows reports another
            self._queue_problem = self.problem = f"{self._url}: queue {self._queue}: {reason}"
        self._void()
        if self._connection is not None and self._connection.is_open:
            self._connection.close()

    def _consume(self, _: Any) -> None:
        channel = self._channel
        if self._reader is not None:
            self._reader.channel = channel.channel_number
        channel.basic_consume(self._queue, self._delivered, consumer_tag=CONSUMER_TAG, callback=self._consuming)

    def _consuming(self, _: Any) -> None:
        self._consuming_s = time.monotonic()
        self.problem = None
        log_event("bridge_source_connected", "info", {"source": str(self._url), "has_session": True})

    def _blocked(self, _: Any, frame: Any) -> None:
        self.problem = f"{self._url}: the broker has blocked the connection: {frame.method.reason}"

    def _unblocked(self, _: Any, frame: Any) -> None:
        self.problem = None

    def _delivered(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        """Take a delivery that pika has read: one that was not in one piece."""
        if channel is self._channel:
            self._deliver(method.delivery_tag, Envelope(method.exchange, method.routing_key, properties), body)

    def _deliver(self, number: int, envelope: Envelope, body: bytes) -> None:
        if self._stopping.is_set():
            return
        self.counts.received += 1
        self._held.append((envelope, body, self._acks.add(Slot(number, 1, self))))
        if len(self._held) == 1:
            self._forward_held()

    def _forward_held(self) -> None:
        """Forward messages in order. While a schema registry does not answer, or the sink is full, they wait."""
        held = self._held
        while held and not self._stopping.is_set():
            if self.sink.is_full:
                self._awaits_room = True
                return
            waiting = envelope, body, slot = held.popleft()
            message = envelope.message.with_payload(body)
            try:
                if envelope.problem is None:
                    self.forwarder.forward(message, slot, understands_refusals=False)
                else:
                    self.forwarder.refuse_malformed(message, envelope.problem, slot)
            except RegistryUnavailable as error:
                held.appendleft(waiting)
                log_event("bridge_registry_awaited", "warning", {"error": str(error)})
                self._connection.ioloop.call_later(REGISTRY_AGAIN_S, self._forward_held)
                return

    def settled(self) -> None:
        """Record what is to be acknowledged, of the channel that is open: of another one the acknowledger is void."""
        for each in self._acks.released():
            if each.code:
                if self._channel is not None:
                    self._lost_queue(f"a message was not written: {each.reason}")
                return
            self._ack_to = each.number

    def _after_drain(self) -> None:
        if self._ack_to and self._channel is not None and self._channel.is_open:
            self._channel.basic_ack(self._ack_to, multiple=True)
            self._ack_to = 0
        if self._awaits_room and not self.sink.is_full:
            self._awaits_room = False
            self._forward_held()
        if self._stopping.is_set() and not self.sink.in_flight:
            self._end()

    def _void(self) -> None:
        self._acks.void()
        self._held.clear()
        self._awaits_room = False
        self._channel = None
        if self._reader is not None:
            self._reader.channel = 0
        self._ack_to = 0

    def _begin_stop(self) -> None:
        if not self.sink.in_flight or self._connection is None:
            self._end()
        else:
            self._connection.ioloop.call_later(self._drain_s, self._end)

    def _end(self) -> None:
        connection = self._connection
        if connection is None:
            return
        self._channel = None
        if connection.is_open:
            connection.close()
        elif connection.is_closed:
            connection.ioloop.stop()


def error_text(error: Any) -> str:
    """Return the text of an error of pika; some have it only in their `repr`."""
    return f"{type(error).__name__}: {error}" if str(error) else repr(error)
