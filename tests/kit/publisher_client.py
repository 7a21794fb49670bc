"""A client and its session at the listener, without a socket."""

from __future__ import annotations

from typing import Any

from ottla.bridge.mqtt import packet_decoding as decoding
from ottla.bridge.mqtt import packet_encoding as encoding
from ottla.bridge.mqtt.codes import V5, PacketType
from ottla.bridge.mqtt.listener_limits import ListenerLimits
from ottla.bridge.mqtt.packet_frames import Framer
from ottla.bridge.mqtt.packets import Connect, Publish
from ottla.bridge.mqtt.publisher_session import PublisherSession
from ottla.bridge.mqtt.session_state import SessionState


class Client:
    """One client and its session."""

    def __init__(
        self, version: int = V5, *, state: SessionState | None = None, limits: ListenerLimits | None = None, **of: Any
    ) -> None:
        self.version = version
        self.session = PublisherSession(limits or ListenerLimits())
        self.session.receive(encoding.encode_connect(Connect(client_id="c", version=version, **of)))
        if self.session.closing is None:
            self.session.accept(state or SessionState(), session_present=state is not None, client_id="c")
            self.connack = self.packets()[0]

    def publish(self, packet_id: int, *, qos: int = 1, topic: str = "a", **of: Any) -> None:
        message = Publish(topic, b"x", qos=qos, packet_id=packet_id, **of)
        self.session.receive(encoding.encode_publish(message, self.version))

    def send(self, data: bytes) -> None:
        self.session.receive(data)

    def packets(self) -> list[tuple[int, bytes]]:
        found = Framer(max_packet_bytes=1 << 20).feed(bytes(self.session.out))
        self.session.out.clear()
        return found

    def acks(self) -> list[tuple[PacketType, int, int]]:
        found = []
        for first, body in self.packets():
            ack = decoding.decode_ack(PacketType(first >> 4), first & 15, body, self.version)
            found.append((PacketType(first >> 4), ack.packet_id, ack.code))
        return found

    def take(self) -> Any:
        found = self.session.next_publish()
        assert found is not None
        return found
