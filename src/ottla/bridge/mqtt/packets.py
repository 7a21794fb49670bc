"""Packets of MQTT as values."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.bridge.acknowledger import Answer
from ottla.bridge.inbound_message import NO_HEADERS, Message
from ottla.bridge.mqtt.codes import V5
from ottla.bridge.mqtt.primitives import NO_PROPERTIES, Properties

_COMPARED = ("dup", "packet_id", "payload", "properties", "qos", "retain", "topic")


class Publish(Message):
    """One message. `packet_id` is 0 at QoS 0; the topic is complete, also where an alias stood for it.

    `described` fills in what the message has of its properties and of its client.
    """

    __slots__ = ("answer", "dup", "packet_id", "properties", "qos", "size_bytes")

    def __init__(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 0,
        packet_id: int = 0,
        retain: bool = False,
        dup: bool = False,
        properties: Properties | None = None,
    ) -> None:
        # Not by the call of the base class: it costs as much as all of these assignments.
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.packet_id = packet_id
        self.retain = retain
        self.dup = dup
        self.properties = NO_PROPERTIES if properties is None else properties
        self.answer: Answer | None = None
        """Records the response to the publisher; None at QoS 0."""
        self.size_bytes = 0
        """Memory while it waits."""
        self.client_id = self.user = self.origin = ""
        self.headers = NO_HEADERS
        self.content_type = self.reply_to = self.correlation = self.expiry_ms = self.message_id = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Publish) and all(getattr(self, name) == getattr(other, name) for name in _COMPARED)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Publish {self.topic!r} qos={self.qos} id={self.packet_id} {len(self.payload)} bytes>"


@dataclass(slots=True, kw_only=True)
class Will:
    """What a server publishes for a client that is gone."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Connect:
    """A client's first packet."""

    client_id: str
    version: int = V5
    clean_start: bool = True
    keep_alive_s: int = 0
    username: str | None = None
    password: bytes | None = field(default=None, repr=False)
    will: Will | None = None
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Connack:
    """A server's answer to CONNECT. `code` is a return code of 3.1.1 or a reason code of 5.0."""

    code: int
    session_present: bool = False
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Ack:
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""

    packet_id: int
    code: int = 0
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Suback:
    """A server's answer to SUBSCRIBE: one code per filter."""

    packet_id: int
    codes: tuple[int, ...]
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Disconnect:
    """The last packet of a connection."""

    code: int = 0
    properties: Properties = field(default_factory=dict)
