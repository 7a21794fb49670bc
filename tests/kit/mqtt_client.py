"""A strict MQTT client: it checks the order of acknowledgements, and does nothing by itself."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from typing import Any

from ottla.bridge.mqtt import packet_decoding as decoding
from ottla.bridge.mqtt import packet_encoding as encoding
from ottla.bridge.mqtt.codes import V5, PacketType
from ottla.bridge.mqtt.packet_frames import Frame, Framer
from ottla.bridge.mqtt.packets import Ack, Connack, Connect, Disconnect, Publish


class StrictClient:
    """One connection. Every read has a limit of time."""

    def __init__(
        self,
        port: int,
        client_id: str = "strict",
        *,
        version: int = V5,
        tls: ssl.SSLContext | None = None,
        connect: bool = True,
        **of: Any,
    ) -> None:
        self.version = version
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        if tls is not None:
            try:
                self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
            except BaseException:
                self.socket.close()
                raise
        self._framer = Framer(max_packet_bytes=1 << 20)
        self._frames: deque[Frame] = deque()
        self.expected: dict[int, deque[int]] = {1: deque(), 2: deque()}
        """Packet ids that wait for PUBACK and PUBREC, in the order in which they were sent."""
        self.acknowledged: list[int] = []
        self._next_id = 0
        if connect:
            try:
                self.connack = self._connect(Connect(client_id=client_id, version=version, **of))
            except BaseException:
                self.socket.close()
                raise

    def _connect(self, connect: Connect) -> Connack:
        self.socket.sendall(encoding.encode_connect(connect))
        kind, packet = self.packet()
        assert kind == PacketType.CONNACK
        assert isinstance(packet, Connack)
        return packet

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def publish(self, topic: str, payload: bytes, *, qos: int = 1, packet_id: int | None = None, **of: Any) -> int:
        if packet_id is None and qos:
            self._next_id = self._next_id % 65_535 + 1
            packet_id = self._next_id
        message = Publish(topic, payload, qos=qos, packet_id=packet_id or 0, **of)
        if qos:
            self.expected[qos].append(message.packet_id)
        self.send(encoding.encode_publish(message, self.version))
        return message.packet_id

    def frame(self) -> Frame:
        while not self._frames:
            data = self.socket.recv(65_536)
            if not data:
                raise EOFError("the server closed the connection")
            self._frames.extend(self._framer.feed(data))
        return self._frames.popleft()

    def packet(self) -> tuple[PacketType, Connack | Ack | Disconnect | bytes]:
        first, body = self.frame()
        kind = PacketType(first >> 4)
        if kind == PacketType.CONNACK:
            return kind, decoding.decode_connack(body, self.version)
        if kind == PacketType.DISCONNECT:
            return kind, decoding.decode_disconnect(first & 15, body, self.version)
        if kind in (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBCOMP):
            return kind, decoding.decode_ack(kind, first & 15, body, self.version)
        return kind, body

    def ack(self) -> Ack:
        """The next PUBACK or PUBREC. It must be the one whose turn it is."""
        while True:
            kind, packet = self.packet()
            if kind in (PacketType.PUBACK, PacketType.PUBREC):
                assert isinstance(packet, Ack)
                wanted = self.expected[1 if kind == PacketType.PUBACK else 2].popleft()
                assert packet.packet_id == wanted, f"{kind.name} of {packet.packet_id}, the turn was of {wanted}"
                self.acknowledged.append(packet.packet_id)
                return packet
            assert kind in (PacketType.PINGRESP, PacketType.PUBCOMP), f"{kind.name}: {packet!r}"

    def release(self, packet_id: int) -> None:
        self.send(encoding.encode_ack(PacketType.PUBREL, packet_id, 0, self.version))
        kind, packet = self.packet()
        assert kind == PacketType.PUBCOMP
        assert isinstance(packet, Ack)
        assert packet.packet_id == packet_id

    def ping(self) -> None:
        self.send(encoding.PINGREQ)
        assert self.frame()[0] >> 4 == PacketType.PINGRESP

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> StrictClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
