"""The subscriber of an MQTT broker: its messages go to Kafka, and are acknowledged once Kafka has them.

The connection is made again for as long as the bridge runs, with growing pauses. A broker that refuses the login or a
filter is asked again too, less often: an operator may mend it, and the broker keeps the session's messages meanwhile.
"""

from __future__ import annotations

import asyncio
import ssl
from random import Random
from typing import Any, Final

from ottla.bridge.forwarding.counts import BridgeCounts
from ottla.bridge.forwarding.forwarder import Forwarder
from ottla.bridge.forwarding.sink import Sink
from ottla.bridge.mqtt.codes import V5, Property
from ottla.bridge.mqtt.packets import Connect
from ottla.bridge.mqtt.published_messages import described, id_of_qos2
from ottla.bridge.mqtt.session_state import Receipt
from ottla.bridge.mqtt.subscriber_session import SubscriberSession
from ottla.bridge.reconnects import FIRST_PAUSE_S, next_pause_s
from ottla.bridge.source_urls import MqttSource
from ottla.telemetry import log_event

_CONNECT_S: Final = 10.0
_KEEP_ALIVE_S: Final = 30
_REFUSED_PAUSE_S: Final = 10.0
_NEVER_EXPIRES: Final = 0xFFFFFFFF


class MqttSubscriber:
    """One subscription, over one connection at a time. Belongs to one event loop."""

    def __init__(
        self,
        source: MqttSource,
        *,
        sink: Sink,
        forwarder: Forwarder,
        counts: BridgeCounts,
        max_packet_bytes: int,
    ) -> None:
        self._source = source
        self._url = source.url
        self._max_packet_bytes = max_packet_bytes
        self._tls = ssl.create_default_context() if source.url.is_tls else None
        self._receipts: dict[int, Receipt] = {}
        self._link: _Link | None = None
        self._task: asyncio.Task[None] | None = None
        self._random = Random()
        self.sink = sink
        self.forwarder = forwarder
        self.counts = counts
        self.problem: str | None = f"{source.url}: not connected yet"
        """Why no messages come in, or None while they do."""
        sink.after_drain = self._pump

    def open(self) -> None:
        """Begin to connect."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self, drain_s: float) -> None:
        """Take no more messages, wait for those in flight, acknowledge them, and say goodbye."""
        link = self._link
        if link is not None:
            link.is_stopping = True
            link.pause()
            loop = asyncio.get_running_loop()
            deadline_s = loop.time() + drain_s
            while self.sink.in_flight and loop.time() < deadline_s:  # noqa: ASYNC110  # reports come from a thread
                await asyncio.sleep(0.02)
            link.flush()
            link.session.disconnect()
            link.flush()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            served_s = 0.0
            try:
                served_s = await self._connection()
            except (OSError, TimeoutError, ssl.SSLError) as error:
                self.problem = f"{self._url}: {type(error).__name__}: {error}"
            pause_s = next_pause_s(pause_s, served_s=served_s)
            log_event("bridge_source_lost", "warning", {"source": str(self._url), "reason": self.problem})
            await asyncio.sleep(pause_s * self._random.uniform(0.5, 1.0))

    async def _connection(self) -> float:
        """Serve one connection until it ends. Returns for how many seconds messages could come in."""
        loop = asyncio.get_running_loop()
        session = SubscriberSession(
            self._connect(),
            self._source.subscriptions,
            qos=self._source.qos,
            max_packet_bytes=self._max_packet_bytes,
            receipts=self._receipts,
        )
        link = _Link(self, session)
        async with asyncio.timeout(_CONNECT_S):
            await loop.create_connection(
                lambda: link,
                self._url.host,
                self._url.port,
                ssl=self._tls,
                server_hostname=self._url.host if self._tls is not None else None,
            )
        self._link = link
        try:
            await self._watch(link)
        finally:
            self._link = None
            session.end("the connection was lost")
            link.abort()
        self.problem = f"{self._url}: {session.closing}"
        if session.is_refused:
            await asyncio.sleep(_REFUSED_PAUSE_S)
            return 0.0
        return 0.0 if link.subscribed_s is None else loop.time() - link.subscribed_s

    async def _watch(self, link: _Link) -> None:
        """Send PINGREQs until the connection ends. A broker that does not answer is left."""
        session = link.session
        waited_s = 0.0
        while not link.is_over.is_set():
            every_s = (session.server_keep_alive_s or _KEEP_ALIVE_S) / 2
            try:
                async with asyncio.timeout(min(every_s, _CONNECT_S)):  # wait_for of 3.11 may swallow the cancellation
                    await link.is_over.wait()
            except TimeoutError:
                if not session.is_subscribed:
                    session.end("the broker did not answer CONNECT and SUBSCRIBE in time")
                    return
                waited_s += min(every_s, _CONNECT_S)
                if waited_s < every_s:
                    continue
                waited_s = 0.0
                if not session.has_pong and not link.is_paused:
                    session.end("the broker did not answer a PINGREQ")
                    return
                session.ping()
                link.flush()

    def _connect(self) -> Connect:
        about: dict[int, Any] = {}
        if self._source.version == V5:
            about = {
                Property.SESSION_EXPIRY: _NEVER_EXPIRES,
                Property.RECEIVE_MAXIMUM: self._source.window,
                Property.MAXIMUM_PACKET_SIZE: self._max_packet_bytes,
            }
        password = self._url.password
        return Connect(
            client_id=self._source.client_id,
            version=self._source.version,
            clean_start=False,
            keep_alive_s=_KEEP_ALIVE_S,
            username=self._url.username,
            password=None if password is None else password.encode(),
            properties=about,
        )

    def _pump(self) -> None:
        if self._link is not None:
            self._link.pump()


class _Link(asyncio.Protocol):
    """One connection."""

    def __init__(self, owner: MqttSubscriber, session: SubscriberSession) -> None:
        self._owner = owner
        self._transport: Any = None
        self._is_checking = False
        self.session = session
        self.is_over = asyncio.Event()
        self.is_paused = False
        self.is_stopping = False
        self.subscribed_s: float | None = None
        """When messages could come in, by the loop's clock."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.flush()

    def data_received(self, data: bytes) -> None:
        was_subscribed = self.session.is_subscribed
        self.session.receive(data)
        if self.session.is_subscribed and not was_subscribed:
            self._owner.problem = None
            self.subscribed_s = asyncio.get_running_loop().time()
            fields = {"source": str(self._owner._url), "has_session": self.session.has_session}
            log_event("bridge_source_connected", "info", fields)
        self.pump()

    def connection_lost(self, error: Exception | None) -> None:
        self.session.end(f"the connection was lost{'' if error is None else f': {error}'}")
        self.is_over.set()

    def pump(self) -> None:
        """Forward the messages for which there is room, and write acknowledgements."""
        owner, session = self._owner, self.session
        while not self._is_checking and not self.is_stopping and session.closing is None:
            first = session.first()
            if first is None or (owner.sink.is_full and first.qos):
                break
            message_id = id_of_qos2(owner._source.client_id, first) if first.qos == 2 else None
            message = described(first, client_id="", user="", message_id=message_id)
            if owner.forwarder.mapping.has_checks and owner.forwarder.would_block(message):
                self._is_checking = True
                self._checking = asyncio.get_running_loop().create_task(self._check(message))
                break
            found = session.next_publish()
            if found is None:
                break
            owner.counts.received += 1
            if not found.qos and owner.sink.is_full_for_qos0:
                owner.counts.dropped += 1
                continue
            owner.forwarder.forward(message, found.answer, understands_refusals=False)
        self.flush()
        self.pause() if session.inbox else self._resume()

    async def _check(self, message: Any) -> None:
        await self._owner.forwarder.await_schema(message, lambda: self.session.closing is not None)
        self._is_checking = False
        self.pump()

    def flush(self) -> None:
        """Write what is to be sent, and end the connection if the session has ended."""
        if self.session.out and not self._transport.is_closing():
            self._transport.write(bytes(self.session.out))
        self.session.out.clear()
        if self.session.closing is not None:
            self._transport.close()

    def pause(self) -> None:
        """Read nothing more for now."""
        if not self.is_paused and not self._transport.is_closing():
            self.is_paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self.is_paused and not self.is_stopping and not self._transport.is_closing():
            self.is_paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        """End the connection at once, if something was written after it: when that is sent."""
        self._transport.close()
