"""One connection of the bridge to an MQTT broker, whose messages go to Kafka. No socket, no clock.

The session is persistent: a fixed client id, no clean start, and a session expiry. What was not acknowledged is
delivered again on the next connection, and with DUP or without it is forwarded: DUP does not mean that it arrived
before. The filters are subscribed to after every connect, because a broker may have lost the session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from ottla.bridge.acknowledger import OrderedAcknowledger, Slot
from ottla.bridge.mqtt import packet_decoding as decoding
from ottla.bridge.mqtt.codes import V5, PacketType, Property, Reason
from ottla.bridge.mqtt.packet_encoding import (
    PINGREQ,
    encode_ack,
    encode_connect,
    encode_disconnect,
    encode_subscribe,
)
from ottla.bridge.mqtt.packet_frames import Framer
from ottla.bridge.mqtt.packets import Connect, Publish
from ottla.bridge.mqtt.primitives import MOST_REMAINING, PacketError, packet
from ottla.bridge.mqtt.session_state import Receipt

_PUBLISH: Final = int(PacketType.PUBLISH)
_SUBSCRIBE_ID: Final = 1
_RETAIN_AS_PUBLISHED: Final = 0x08
_RETAINED_ONCE: Final = 0x10
"""Retain handling 1: retained messages come only when the subscription is new."""


class SubscriberSession:
    """The state of one connection. `receipts` are the unreleased QoS 2 messages, which outlive connections."""

    def __init__(
        self,
        connect: Connect,
        filters: Sequence[str],
        *,
        qos: int,
        max_packet_bytes: int,
        receipts: dict[int, Receipt],
    ) -> None:
        self._framer = Framer(max_packet_bytes=max_packet_bytes)
        self._acks = OrderedAcknowledger()
        self._receipts = receipts
        self._filters = tuple(filters)
        self._qos = qos
        self._is_connected = False
        self._version = connect.version
        self.is_subscribed = False
        """Whether the broker accepted every filter."""
        self.has_session = False
        """Whether the broker still had the session of before."""
        self.server_keep_alive_s: int | None = None
        self.inbox: deque[Publish] = deque()
        self.out = bytearray(encode_connect(connect))
        """Bytes to send. The caller takes and clears them."""
        self.closing: str | None = None
        """Why the connection must be closed."""
        self.is_refused = False
        """Whether the broker refused the login or a filter: the next attempt gives the same answer."""
        self.has_pong = True
        """Whether the last PINGREQ was answered."""

    def receive(self, data: bytes) -> None:
        """Read packets from the next bytes of the connection."""
        if self.closing is not None:
            return
        try:
            for first, body in self._framer.feed(data):
                if first >> 4 == _PUBLISH and self._is_connected:
                    # No bound: a broker would send a message that is refused again and again.
                    publish = decoding.decode_publish(first & 15, body, self._version, most_pairs=MOST_REMAINING)
                    self.inbox.append(publish)
                else:
                    self._other(first >> 4, first & 15, body)
                if self._has_ended():
                    return
        except PacketError as error:
            self.fail(error.reason, str(error))

    def _has_ended(self) -> bool:
        return self.closing is not None

    def ping(self) -> None:
        """Ask whether the broker is there. `has_pong` is false until it answers."""
        self.has_pong = False
        self.out += PINGREQ

    def first(self) -> Publish | None:
        """Return the message that `next_publish` takes. QoS 2 messages that came before are acknowledged here."""
        while self.inbox:
            publish = self.inbox[0]
            known = self._receipts.get(publish.packet_id) if publish.qos == 2 else None
            if known is None:
                return publish
            self.inbox.popleft()
            known.slot = self._acks.add(Slot(publish.packet_id, 2, self))
            if known.code == 0:
                known.slot.settle(0)
        return None

    def next_publish(self) -> Publish | None:
        """Take the first message and give it its answer. Returns None where there is none."""
        publish = self.first()
        if publish is None:
            return None
        self.inbox.popleft()
        if publish.qos:
            slot = publish.answer = self._acks.add(Slot(publish.packet_id, publish.qos, self))
            if publish.qos == 2:
                receipt = Receipt(publish.packet_id, self._receipts, slot)
                publish.answer = self._receipts[publish.packet_id] = receipt
        return publish

    def settled(self) -> None:
        """Write the acknowledgements that are due."""
        for each in self._acks.released():
            if self.closing is not None:
                return
            if each.code:
                self.fail(Reason.IMPLEMENTATION_ERROR, each.reason or "Kafka did not answer")
                return
            kind = PacketType.PUBACK if each.qos == 1 else PacketType.PUBREC
            self.out += encode_ack(kind, each.number, 0, self._version)

    def fail(self, reason: Reason, text: str) -> None:
        """End the connection, and say so to a broker of 5.0."""
        if self.closing is None:
            if self._is_connected:
                self.out += encode_disconnect(reason, self._version)
            self.end(text)

    def disconnect(self) -> None:
        """Send DISCONNECT. The broker keeps the session and the messages that are not acknowledged."""
        if self.closing is None:
            self.out += packet(PacketType.DISCONNECT << 4, b"")
            self.end("the bridge stops")

    def end(self, why: str) -> None:
        """End: what is settled later acknowledges nothing here."""
        if self.closing is None:
            self.closing = why
        self._acks.void()

    def _other(self, kind: int, flags: int, body: bytes) -> None:
        if kind == PacketType.CONNACK and not self._is_connected:
            self._connected(body)
        elif not self._is_connected:
            raise PacketError(Reason.PROTOCOL_ERROR, f"the broker's first packet is of type {kind}, wanted CONNACK")
        elif kind == PacketType.SUBACK:
            self._subscribed(body)
        elif kind == PacketType.PINGRESP:
            self.has_pong = True
        elif kind == PacketType.PUBREL:
            ack = decoding.decode_ack(PacketType.PUBREL, flags, body, self._version)
            known = self._receipts.pop(ack.packet_id, None)
            code = 0 if known is not None else Reason.PACKET_ID_NOT_FOUND
            self.out += encode_ack(PacketType.PUBCOMP, ack.packet_id, code, self._version)
        elif kind == PacketType.DISCONNECT and self._version == V5:
            found = decoding.decode_disconnect(flags, body, self._version)
            words = found.properties.get(Property.REASON_STRING, "")
            if found.code == Reason.SESSION_TAKEN_OVER:
                words = "another client has connected with this client id: each bridge needs its own"
            self.end(f"the broker disconnected with reason code {found.code:#04x} {words}".rstrip())
        else:
            raise PacketError(Reason.PROTOCOL_ERROR, f"found a packet of type {kind}, which no broker sends here")

    def _connected(self, body: bytes) -> None:
        found = decoding.decode_connack(body, self._version)
        if found.code:
            words = found.properties.get(Property.REASON_STRING, "")
            self.is_refused = found.code not in (Reason.SERVER_UNAVAILABLE, Reason.SERVER_BUSY, 3)
            self.end(f"the broker refused the connection with code {found.code:#04x} {words}".rstrip())
            return
        self._is_connected = True
        self.has_session = found.session_present
        if not found.session_present:
            self._receipts.clear()  # their packet ids mean nothing to the broker any more
        self.server_keep_alive_s = found.properties.get(Property.SERVER_KEEP_ALIVE)
        most = found.properties.get(Property.MAXIMUM_QOS, 2)
        options = min(self._qos, most)
        if self._version == V5:
            options |= _RETAIN_AS_PUBLISHED | _RETAINED_ONCE
        self.out += encode_subscribe(_SUBSCRIBE_ID, [(name, options) for name in self._filters], self._version)

    def _subscribed(self, body: bytes) -> None:
        found = decoding.decode_suback(body, self._version)
        refused = [name for name, code in zip(self._filters, found.codes, strict=False) if code >= 0x80]
        if refused or len(found.codes) != len(self._filters):
            self.is_refused = True
            self.fail(Reason.UNSPECIFIED, f"the broker refused to subscribe to {', '.join(refused)}")
            return
        self.is_subscribed = True
