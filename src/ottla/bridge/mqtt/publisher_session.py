"""One publisher's connection, as the listener sees it: bytes in, messages and bytes out. No socket, no clock.

1. `receive(data)` reads packets. A CONNECT is left in `connect`, and nothing more is read until `accept`.
2. PUBLISHes go to `inbox`, everything else is answered at once in `out`: a PINGREQ is answered although messages wait.
3. `next_publish` takes the next message for which there is room in the window, and gives it its answer. Once that is
   settled, the holder is called, and `acknowledge` writes what is due to `out`, in the order of the messages.
4. What breaks the protocol or a limit ends the session: `closing` says why, and `out` has the last packet.

The window is the Receive Maximum. A client of 5.0 that exceeds it is disconnected, as the standard says. A client of
3.1.1 does not know it: its messages wait in `inbox`, and the caller stops reading when `is_full`.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ottla.bridge.acknowledger import PENDING, UNKNOWN, Holder, OrderedAcknowledger, Slot
from ottla.bridge.mqtt import packet_decoding as decoding
from ottla.bridge.mqtt.codes import V5, PacketType, Property, Reason
from ottla.bridge.mqtt.handshake import check_connect, limits_of_listener, wants_reasons
from ottla.bridge.mqtt.listener_limits import ListenerLimits
from ottla.bridge.mqtt.packet_encoding import PINGRESP, encode_ack, encode_connack, encode_disconnect
from ottla.bridge.mqtt.packet_frames import Frame, Framer
from ottla.bridge.mqtt.packets import Connack, Connect, Disconnect, Publish
from ottla.bridge.mqtt.primitives import PacketError
from ottla.bridge.mqtt.published_messages import bytes_of_waiting
from ottla.bridge.mqtt.receive_quota import ReceiveQuota
from ottla.bridge.mqtt.refusal_packets import refused_connect, refused_subscription
from ottla.bridge.mqtt.session_state import Receipt, SessionState
from ottla.bridge.mqtt.topic_aliases import TopicAliases

_LONGEST_REASON: Final = 200
_AT_ONCE: Final = 128
"""Packets that are cut before it is asked again whether the session is full."""
_FIRST_BYTE: Final = PacketType.CONNECT << 4
_PUBLISH: Final = int(PacketType.PUBLISH)
_PUBACK: Final = 0x40_02_00_00  # without its packet id


class PublisherSession:
    """The state of one connection."""

    __slots__ = (
        "_acks",
        "_aliases",
        "_framer",
        "_gives_reasons",
        "_is_open",
        "_limits",
        "_quota",
        "_state",
        "closing",
        "connect",
        "holder",
        "inbox",
        "inbox_bytes",
        "is_graceful",
        "out",
        "repeats",
        "version",
    )

    def __init__(self, limits: ListenerLimits) -> None:
        self._limits = limits
        self._framer = Framer(max_packet_bytes=limits.max_packet_bytes)
        self._acks = OrderedAcknowledger()
        self._aliases: TopicAliases | None = None
        self._state: SessionState | None = None
        self._is_open = False
        self._gives_reasons = False
        self._quota = ReceiveQuota(limits.receive_maximum)
        self.version = V5
        self.holder: Holder = self
        """What is called when acknowledgements are due; the session itself writes them at once."""
        self.connect: Connect | None = None
        """The client's CONNECT, once it came."""
        self.inbox: deque[Publish] = deque()
        """Messages that were not taken yet."""
        self.inbox_bytes = 0
        self.out = bytearray()
        """Bytes to send. The caller takes and clears them."""
        self.closing: str | None = None
        """Why the connection must be closed after `out` is sent."""
        self.repeats = 0
        """QoS 2 messages that came again before their release."""
        self.is_graceful = False
        """Whether the client said goodbye, so that its will is not published."""

    @property
    def unacknowledged(self) -> int:
        """Return the number of messages in the window."""
        return len(self._acks)

    @property
    def is_full(self) -> bool:
        """Return whether nothing more should be read for now."""
        return self.inbox_bytes > self._limits.max_waiting_bytes or (self.connect is not None and not self._is_open)

    # What comes in

    def receive(self, data: bytes) -> None:
        """Read packets from the next bytes of the connection, as long as the session is not full."""
        framer = self._framer
        try:
            if self.connect is None and data and not framer.kept and data[0] != _FIRST_BYTE:
                raise PacketError(Reason.PROTOCOL_ERROR, "the first packet is not a CONNECT")
            if self.is_full:
                framer.keep(data)
                return
            while self.closing is None:
                for frame in framer.feed(data, most=_AT_ONCE if self._is_open else 1):  # not past a CONNECT
                    self._read(frame)
                    if self._has_ended():
                        return
                data = b""
                if self.is_full or not framer.has_more:
                    return
        except PacketError as error:
            self.fail(error.reason, str(error))

    def resume(self) -> bool:
        """Read what was kept while the session was full. Returns whether messages wait now."""
        if self.closing is not None or self.is_full or not self._framer.has_more:
            return False
        self.receive(b"")
        return bool(self.inbox)

    def _has_ended(self) -> bool:
        return self.closing is not None

    def _read(self, frame: Frame) -> None:
        first, body = frame
        if not self._is_open:
            self._first(frame)
        elif first >> 4 == _PUBLISH:
            self._publish(first & 15, body)
        else:
            self._other(PacketType(first >> 4) if first >= 16 else None, first & 15, body)

    def _first(self, frame: Frame) -> None:
        first, body = frame
        connect = decoding.decode_connect(first & 15, body)
        self.version = connect.version
        self._gives_reasons = wants_reasons(connect)
        check_connect(connect, self._limits)
        self.connect = connect

    def _publish(self, flags: int, body: bytes) -> None:
        publish = decoding.decode_publish(flags, body, self.version)
        if publish.properties:
            if Property.SUBSCRIPTION_ID in publish.properties:
                raise PacketError(Reason.PROTOCOL_ERROR, "PUBLISH: a subscription id from a client")
            if self._aliases is None:
                limits = self._limits
                self._aliases = TopicAliases(
                    maximum=limits.topic_alias_maximum, most_characters=limits.max_waiting_bytes
                )
            self._aliases.resolve(publish)
        if publish.qos:
            if publish.qos > self._limits.max_qos:
                raise PacketError(Reason.QOS_NOT_SUPPORTED, f"QoS {publish.qos}, the highest is {self._limits.max_qos}")
            if self.version == V5:
                self._quota.use(publish)
        publish.size_bytes = bytes_of_waiting(publish, len(body))
        self.inbox.append(publish)
        self.inbox_bytes += publish.size_bytes

    def _other(self, kind: PacketType | None, flags: int, body: bytes) -> None:
        if kind == PacketType.PINGREQ and not flags and not body:
            self.out += PINGRESP
        elif kind == PacketType.PUBREL:
            ack = decoding.decode_ack(kind, flags, body, self.version)
            self._quota.released(ack.packet_id)
            known = self._state is not None and self._state.receipts.pop(ack.packet_id, None) is not None
            code = 0 if known else Reason.PACKET_ID_NOT_FOUND
            self.out += encode_ack(PacketType.PUBCOMP, ack.packet_id, code, self.version)
        elif kind == PacketType.DISCONNECT:
            self._disconnected(decoding.decode_disconnect(flags, body, self.version))
        elif kind in (PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE):
            packet_id, count = decoding.decode_subscribe(kind, flags, body, self.version)
            self.out += refused_subscription(kind, packet_id, count, self.version, in_words=self._gives_reasons)
        else:
            name = "AUTH" if kind == PacketType.AUTH else getattr(kind, "name", "type 0")
            raise PacketError(Reason.PROTOCOL_ERROR, f"found a packet {name}, which a publisher does not send")

    def _disconnected(self, found: Disconnect) -> None:
        expiry_s = found.properties.get(Property.SESSION_EXPIRY)
        if self._state is not None and expiry_s is not None:
            if expiry_s and not self._state.expiry_s:
                raise PacketError(Reason.PROTOCOL_ERROR, "DISCONNECT: a session expiry after a CONNECT without one")
            self._state.expiry_s = min(expiry_s, self._limits.max_session_expiry_s)
        self.is_graceful = found.code == 0
        self._end("the client disconnected")

    # The answer to CONNECT

    def accept(self, state: SessionState, *, session_present: bool, client_id: str) -> None:
        """Answer the CONNECT, and read what came behind it."""
        connect = self.connect
        assert connect is not None
        self._state = state
        about = limits_of_listener(connect, self._limits, client_id) if self.version == V5 else {}
        answer = Connack(code=0, session_present=session_present, properties=about)
        self.out += encode_connack(answer, self.version)
        self._is_open = True
        self.receive(b"")

    # Messages and what becomes of them

    def next_publish(self) -> Publish | None:
        """Return the next message with its answer, or None where none waits or the window is full.

        A QoS 2 message that came before is answered, not returned.
        """
        inbox = self.inbox
        while inbox:
            publish = inbox[0]
            if publish.qos and len(self._acks) >= self._limits.receive_maximum:
                return None
            inbox.popleft()
            self.inbox_bytes -= publish.size_bytes
            if not publish.qos:
                return publish
            slot = self._acks.add(Slot(publish.packet_id, publish.qos, self.holder))
            publish.answer = slot if publish.qos == 1 else self._receipt_of(publish.packet_id, slot)
            if self.closing is not None:
                return None
            if publish.answer is not None:
                return publish
        return None

    def _receipt_of(self, packet_id: int, slot: Slot) -> Receipt | None:
        """Return a new receipt, or None if the message is a repetition whose slot is settled or will be."""
        assert self._state is not None
        receipts = self._state.receipts
        known = receipts.get(packet_id)
        if known is not None:
            self.repeats += 1
            is_awaited = known.code == PENDING and known.slot.holder is self.holder
            if is_awaited:  # sent again on one connection: one PUBREC answers both, in the place of the first
                self._acks.remove_last()
                return None
            known.slot = slot
            if known.code == 0:
                slot.settle(0)
            return None
        if len(receipts) >= self._limits.max_unreleased:
            self.fail(Reason.QUOTA_EXCEEDED, f"{len(receipts):,} QoS 2 messages are not released")
            return None
        return receipts.setdefault(packet_id, Receipt(packet_id, receipts, slot))

    def settled(self) -> None:
        """Write the acknowledgements that are due."""
        self.acknowledge()

    def acknowledge(self) -> None:
        """Write the acknowledgements that are due: of settled messages with none before them that is not."""
        for each in self._acks.released():
            if self.closing is not None:
                return
            if each.code == UNKNOWN:
                self.fail(Reason.IMPLEMENTATION_ERROR, each.reason or "Kafka did not answer")
                return
            if each.code and self.version != V5:
                self.fail(Reason(each.code), each.reason)
                return
            number = each.number
            if each.qos == 1:
                self._quota.acknowledged_one()
                if not each.code:
                    self.out += (_PUBACK | number).to_bytes(4, "big")
                    continue
            kind = PacketType.PUBACK if each.qos == 1 else PacketType.PUBREC
            if each.code:
                self._quota.released(number)
            words = each.reason[:_LONGEST_REASON] if self._gives_reasons else ""
            self.out += encode_ack(kind, number, each.code, self.version, words)

    # The end

    def fail(self, reason: Reason, text: str) -> None:
        """End the session for this reason, which a client of 5.0 gets in words."""
        if self.closing is not None:
            return
        words = text[:_LONGEST_REASON] if self._gives_reasons else ""
        if self._is_open:
            self.out += encode_disconnect(reason, self.version, words)
        else:
            self.out += refused_connect(reason, words, self.version, has_connect=self.connect is not None)
        self._end(text)

    def lost(self) -> None:
        """End: the connection is gone."""
        self._end(self.closing or "the connection was lost")

    def _end(self, why: str) -> None:
        self.closing = why
        self._acks.void()
