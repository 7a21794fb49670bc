"""One publisher's connection on the event loop: the session between a socket and the forwarder."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ottla.bridge.listener.logins import Login, common_name
from ottla.bridge.mqtt.codes import V5, Property, Reason
from ottla.bridge.mqtt.packets import Publish
from ottla.bridge.mqtt.published_messages import described, id_of_qos2
from ottla.bridge.mqtt.publisher_session import PublisherSession
from ottla.bridge.mqtt.session_state import SessionState
from ottla.bridge.mqtt.websocket import ServerWebSocket, WebSocketError
from ottla.telemetry import log_event

if TYPE_CHECKING:
    from ottla.bridge.listener.mqtt_listener import MqttListener

_LONGEST_LOGGED = 200


class PublisherConnection(asyncio.BufferedProtocol):
    """Reads into the listener's buffer: an idle connection has none of its own."""

    __slots__ = (
        "_client_id",
        "_is_checking",
        "_is_clean",
        "_is_paused",
        "_is_writable",
        "_listener",
        "_overdue_ms",
        "_state",
        "_transport",
        "_user",
        "_web",
        "began_ms",
        "heard_ms",
        "session",
    )

    def __init__(self, listener: MqttListener, *, web: bool) -> None:
        self._listener = listener
        self._web = ServerWebSocket(max_frame_bytes=listener.limits.max_packet_bytes) if web else None
        self.session = PublisherSession(listener.limits)
        self.session.holder = self
        self._transport: Any = None
        self._state: SessionState | None = None
        self._client_id = ""
        self._user = ""
        self._is_clean = True
        self._is_paused = False
        self._is_writable = True
        self._is_checking = False
        self.began_ms = self.heard_ms = listener.now_ms()
        self._overdue_ms = 0

    # What asyncio calls

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        if not self._listener.admit(self):
            self.session.fail(Reason.SERVER_BUSY, "too many connections")
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._listener.buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._listener.buffer[:nbytes])
        self.heard_ms = self._listener.now_ms()
        if self._web is not None:
            try:
                data = self._web.receive(data)
            except WebSocketError as error:
                self.session.fail(Reason.PROTOCOL_ERROR, str(error))
                self._transport.write(bytes(self._web.out))
                self._transport.close()
                return
            if self._web.out:
                self._transport.write(bytes(self._web.out))
                self._web.out.clear()
            if self._web.is_closed:
                self._transport.close()
                return
            if not data:
                return
        session = self.session
        had_connect = session.connect is not None
        session.receive(data)
        if session.connect is not None and not had_connect and session.closing is None:
            self._listener.start(self._log_in())
        self.pump()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.session.lost()
        self._listener.closed(self)
        if self._state is not None:
            self._listener.states.close(self._client_id, self, self._listener.now_ms())
        connect = self.session.connect
        if connect is not None and connect.will is not None and self._state is not None:
            will = connect.will
            if not self.session.is_graceful and self._listener.may_send_qos0():
                published = Publish(will.topic, will.payload, retain=will.retain, properties=will.properties)
                self._forward(published)
        if self._state is not None or self.session.connect is not None:
            given = "" if connect is None else connect.client_id
            fields = {
                "client": (self._client_id or given)[:_LONGEST_LOGGED],
                "address": self._address(),
                "reason": self.session.closing or "the connection was lost",
            }
            log_event("bridge_client_gone", "debug" if self.session.is_graceful else "info", fields)

    def pause_writing(self) -> None:
        self._is_writable = False
        self._set_reading()

    def resume_writing(self) -> None:
        self._is_writable = True
        self._set_reading()

    # Messages

    def pump(self) -> None:
        """Write the acknowledgements that are due, and forward the messages for which there is room.

        The acknowledgements of one turn of the loop leave together.
        """
        session, dirty = self.session, self._listener.dirty
        dirty[self] = None
        while dirty.pop(self, self) is None:  # what is refused at once makes room in the window
            session.acknowledge()
            if session.inbox:
                self._forward_inbox()
            if session.resume():
                dirty[self] = None
        if session.repeats:
            self._listener.counts.repeated += session.repeats
            session.repeats = 0
        self.flush()

    def _forward_inbox(self) -> None:
        session, listener = self.session, self._listener
        inbox, sink, counts = session.inbox, listener.sink, listener.counts
        has_checks = listener.forwarder.mapping.has_checks
        while inbox and not self._is_checking:
            if sink.is_full and inbox[0].qos:
                listener.waiting[self] = None
                break
            if has_checks and self._must_wait(inbox[0]):
                break
            publish = session.next_publish()
            if publish is None:
                break
            counts.received += 1
            if publish.qos or listener.may_send_qos0():
                self._forward(publish)
            else:
                counts.dropped += 1

    def settled(self) -> None:
        """Have `pump` called once all reports that have come are handled."""
        self._listener.dirty[self] = None

    def _forward(self, publish: Publish) -> None:
        message_id = None
        if publish.qos == 2 and not self._is_clean:
            message_id = id_of_qos2(self._client_id, publish)
        message = described(publish, client_id=self._client_id, user=self._user, message_id=message_id)
        self._listener.forwarder.forward(message, publish.answer, understands_refusals=self.session.version == V5)

    def _must_wait(self, publish: Publish) -> bool:
        """Return whether the next message's schema must be fetched first; then that is under way."""
        message = described(publish, client_id=self._client_id, user=self._user)
        if not self._listener.forwarder.would_block(message):
            return False
        self._is_checking = True

        async def check() -> None:
            await self._listener.forwarder.await_schema(message, lambda: self.session.closing is not None)
            self._is_checking = False
            self.pump()

        self._listener.start(check())
        return True

    # The connection

    def flush(self) -> None:
        """Write what is to be sent, and end the connection if the session has ended."""
        session = self.session
        if self._transport.is_closing():
            session.out.clear()
            return
        if session.out:
            data = bytes(session.out)
            session.out.clear()
            self._transport.write(data if self._web is None else self._web.wrap(data))
        if session.closing is not None:
            if self._web is not None:
                self._transport.write(self._web.close())
            self._transport.close()
        else:
            self._set_reading()

    def close(self, reason: Reason, text: str) -> None:
        """Disconnect the client for this reason."""
        self.session.fail(reason, text)
        self.flush()

    def abort(self) -> None:
        """End the connection without sending what waits."""
        self._transport.abort()

    def stop_reading(self) -> None:
        """Read nothing more: the listener stops."""
        self._is_writable = False
        self._set_reading()

    def is_overdue(self, now_ms: int) -> bool:
        """Return whether the client has been silent for too long. While nothing is read, it cannot be blamed."""
        if self._state is None:
            return now_ms - self.began_ms > self._listener.limits.connect_timeout_s * 1000
        return not self._is_paused and now_ms - self.heard_ms > self._overdue_ms

    def _set_reading(self) -> None:
        should_pause = self.session.is_full or not self._is_writable
        if should_pause != self._is_paused:
            self._is_paused = should_pause
            if self._transport.is_closing():
                return
            if should_pause:
                self._transport.pause_reading()
            else:
                self.heard_ms = self._listener.now_ms()
                self._transport.resume_reading()

    def _address(self) -> str:
        """Return the client's IP address."""
        return str((self._transport.get_extra_info("peername") or ("",))[0])

    async def _log_in(self) -> None:
        connect, listener, session = self.session.connect, self._listener, self.session
        assert connect is not None
        certificate = common_name(self._transport.get_extra_info("peercert"))
        if not listener.logins.is_open:
            login = Login(
                client_id=connect.client_id,
                username=connect.username,
                password=connect.password,
                certificate_name=certificate,
                address=self._address(),
            )
            if not await listener.logins.admits(login):
                self.close(Reason.BAD_LOGIN if session.version == V5 else Reason.NOT_AUTHORIZED, "login refused")
                return
        if session.closing is not None or listener.is_stopping:
            self.close(Reason.SHUTTING_DOWN, "the bridge stops")
            return
        connect.password = None
        self._client_id = connect.client_id or listener.new_client_id()
        self._user = listener.logins.user(connect.username, certificate)
        self._is_clean = connect.clean_start
        longest_s = listener.limits.max_session_expiry_s
        if session.version == V5:
            expiry_s = min(connect.properties.get(Property.SESSION_EXPIRY, 0), longest_s)
        else:
            expiry_s = 0 if connect.clean_start else longest_s
        keep_alive_s = connect.keep_alive_s or listener.limits.max_keep_alive_s
        self._overdue_ms = keep_alive_s * 1500
        self._state, is_present, taken_from = listener.states.open(
            self._client_id, self, clean_start=connect.clean_start, expiry_s=expiry_s, now_ms=listener.now_ms()
        )
        if taken_from is not None and taken_from is not self:
            taken_from.close(Reason.SESSION_TAKEN_OVER, "another connection has the same client id")
        session.accept(self._state, session_present=is_present, client_id=self._client_id)
        self.pump()
