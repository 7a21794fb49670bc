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
from ottla.bridge.mqtt.codes import CONNACK_311, V5, PacketType, Property, Reason
from ottla.bridge.mqtt.handshake import check_connect, limits_of_listener, wants_reasons
from ottla.bridge.mqtt.listener_limits import ListenerLimits
from ottla.bridge.mqtt.packet_encoding import PINGRESP, encode_ack, encode_connack, encode_disconnect, encode_suback
from ottla.bridge.mqtt.packet_frames import Frame, Framer
from ottla.bridge.mqtt.packets import Connack, Connect, Disconnect, Publish
from ottla.bridge.mqtt.primitives import PacketError, Properties
from ottla.bridge.mqtt.session_state import Receipt, SessionState
from ottla.bridge.mqtt.topic_aliases import TopicAliases

NO_SUBSCRIPTIONS: Final = "this listener takes messages for Kafka and delivers none: consume them from Kafka"
_LONGEST_REASON: Final = 200
_FIRST_BYTE: Final = PacketType.CONNECT << 4
_PUBLISH: Final = int(PacketType.PUBLISH)
_PUBACK: Final = 0x40_02_00_00
"""A PUBACK without its packet id."""


class PublisherSession:
    """The state of one connection."""

    __slots__ = (
        "_acks",
        "_aliases",
        "_framer",
        "_frames",
        "_gives_reasons",
        "_is_open",
        "_limits",
        "_qos2_open",
        "_quota_used",
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
        self._frames: deque[Frame] = deque()
        self._acks = OrderedAcknowledger()
        self._aliases: TopicAliases | None = None
        self._state: SessionState | None = None
        self._is_open = False
        self._gives_reasons = False
        self._quota_used = 0
        self._qos2_open: set[int] = set()
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
        """Read packets from the next bytes of the connection."""
        if self.closing is not None:
            return
        try:
            if data:
                if self.connect is None and not self._framer.kept and data[0] != _FIRST_BYTE:
                    raise PacketError(Reason.PROTOCOL_ERROR, "the first packet is not a CONNECT")
                if self._frames:
                    self._frames.extend(self._framer.feed(data))
                else:
                    self._read(deque(self._framer.feed(data)))
                    return
            self._read(self._frames)
        except PacketError as error:
            self.fail(error.reason, str(error))

    def _read(self, frames: deque[Frame]) -> None:
        while frames:
            if not self._is_open:
                if self.connect is not None:
                    break  # nothing is read before the CONNECT is answered
                self._first(frames.popleft())
                continue
            first, body = frames.popleft()
            if first >> 4 == _PUBLISH:
                self._publish(first & 15, body)
            else:
                self._other(PacketType(first >> 4) if first >= 16 else None, first & 15, body)
            if self.closing is not None:
                return
        self._frames = frames

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
                self._count(publish)
        self.inbox.append(publish)
        self.inbox_bytes += len(body) + 64

    def _count(self, publish: Publish) -> None:
        if publish.qos == 1:
            self._quota_used += 1
        else:
            self._qos2_open.add(publish.packet_id)
        if self._quota_used + len(self._qos2_open) > self._limits.receive_maximum:
            raise PacketError(
                Reason.RECEIVE_MAXIMUM_EXCEEDED,
                f"more than {self._limits.receive_maximum} messages without an acknowledgement",
            )

    def _other(self, kind: PacketType | None, flags: int, body: bytes) -> None:
        if kind == PacketType.PINGREQ and not flags and not body:
            self.out += PINGRESP
        elif kind == PacketType.PUBREL:
            ack = decoding.decode_ack(kind, flags, body, self.version)
            self._qos2_open.discard(ack.packet_id)
            known = self._state is not None and self._state.receipts.pop(ack.packet_id, None) is not None
            code = 0 if known else Reason.PACKET_ID_NOT_FOUND
            self.out += encode_ack(PacketType.PUBCOMP, ack.packet_id, code, self.version)
        elif kind == PacketType.DISCONNECT:
            self._disconnected(decoding.decode_disconnect(flags, body, self.version))
        elif kind in (PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE):
            packet_id, count = decoding.decode_subscribe(kind, flags, body, self.version)
            self._refuse_subscription(kind, packet_id, count)
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

    def _refuse_subscription(self, kind: PacketType, packet_id: int, count: int) -> None:
        answer = PacketType.SUBACK if kind == PacketType.SUBSCRIBE else PacketType.UNSUBACK
        code = Reason.IMPLEMENTATION_ERROR if self.version == V5 else Reason.UNSPECIFIED
        reason = NO_SUBSCRIPTIONS if self._gives_reasons else ""
        self.out += encode_suback(answer, packet_id, [code] * count, self.version, reason)

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
            self.inbox_bytes -= len(publish.payload) + len(publish.topic) + 64
            if not inbox:
                self.inbox_bytes = 0
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
        """Return a new receipt, or None where the message is known and its slot is settled or will be."""
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
        receipt = receipts[packet_id] = Receipt(packet_id, receipts, slot)
        return receipt

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
                self._quota_used -= 1
                if not each.code:
                    self.out += (_PUBACK | number).to_bytes(4, "big")
                    continue
            kind = PacketType.PUBACK if each.qos == 1 else PacketType.PUBREC
            if each.code:
                self._qos2_open.discard(number)
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
        elif self.version == V5 and (self.connect is not None or reason == Reason.UNSUPPORTED_VERSION):
            about: Properties = {Property.REASON_STRING: words} if words else {}
            self.out += encode_connack(Connack(code=reason, properties=about), V5)
        elif reason in CONNACK_311:
            self.out += encode_connack(Connack(code=CONNACK_311[reason]), self.version)
        self._end(text)

    def lost(self) -> None:
        """End: the connection is gone."""
        if self.closing is None:
            self._end("the connection was lost")

    def _end(self, why: str) -> None:
        self.closing = why
        self._acks.void()
        self._frames.clear()
