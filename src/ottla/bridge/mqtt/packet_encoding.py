"""Writes packets."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.bridge.mqtt.codes import V5, PacketType, Property
from ottla.bridge.mqtt.packets import Connack, Connect, Publish
from ottla.bridge.mqtt.primitives import Properties, binary, packet, properties, text

PINGREQ = b"\xc0\x00"
PINGRESP = b"\xd0\x00"


def encode_connect(connect: Connect) -> bytes:
    """Encode a CONNECT."""
    bits = 0x02 if connect.clean_start else 0
    rest = text(connect.client_id)
    if connect.will is not None:
        will = connect.will
        bits |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        if connect.version == V5:
            rest += properties(will.properties)
        rest += text(will.topic) + binary(will.payload)
    if connect.username is not None:
        bits |= 0x80
        rest += text(connect.username)
    if connect.password is not None:
        bits |= 0x40
        rest += binary(connect.password)
    head = text("MQTT") + bytes((connect.version, bits)) + connect.keep_alive_s.to_bytes(2, "big")
    if connect.version == V5:
        head += properties(connect.properties)
    return packet(PacketType.CONNECT << 4, head + rest)


def encode_publish(publish: Publish, version: int) -> bytes:
    """Encode a PUBLISH."""
    first = PacketType.PUBLISH << 4 | (8 if publish.dup else 0) | publish.qos << 1 | (1 if publish.retain else 0)
    body = text(publish.topic)
    if publish.qos:
        body += publish.packet_id.to_bytes(2, "big")
    if version == V5:
        body += properties(publish.properties)
    return packet(first, body + publish.payload)


def encode_connack(connack: Connack, version: int) -> bytes:
    """Encode a CONNACK."""
    body = bytes((1 if connack.session_present else 0, connack.code))
    if version == V5:
        body += properties(connack.properties)
    return packet(PacketType.CONNACK << 4, body)


def encode_ack(kind: PacketType, packet_id: int, code: int, version: int, reason: str = "") -> bytes:
    """Encode a PUBACK, PUBREC, PUBREL or PUBCOMP, with a reason in words for a failure of 5.0."""
    first = kind << 4 | (2 if kind == PacketType.PUBREL else 0)
    body = packet_id.to_bytes(2, "big")
    if version == V5 and code:
        body += bytes((code,))
        if reason:
            body += properties({Property.REASON_STRING: reason})
    return packet(first, body)


def encode_disconnect(code: int, version: int, reason: str = "") -> bytes:
    """Encode a server's DISCONNECT; nothing for 3.1.1, whose servers have none."""
    if version != V5:
        return b""
    about: Properties = {Property.REASON_STRING: reason} if reason else {}
    return packet(PacketType.DISCONNECT << 4, bytes((code,)) + properties(about))


def encode_suback(kind: PacketType, packet_id: int, codes: Sequence[int], version: int, reason: str = "") -> bytes:
    """Encode a SUBACK or UNSUBACK."""
    body = packet_id.to_bytes(2, "big")
    if version == V5:
        body += properties({Property.REASON_STRING: reason} if reason else {})
        body += bytes(codes)
    elif kind == PacketType.SUBACK:
        body += bytes(codes)
    return packet(kind << 4, body)


def encode_subscribe(packet_id: int, filters: Sequence[tuple[str, int]], version: int) -> bytes:
    """Encode a SUBSCRIBE of (filter, options). Options are the QoS, and for 5.0 the bits beside it."""
    body = packet_id.to_bytes(2, "big")
    if version == V5:
        body += properties({})
    for name, options in filters:
        body += text(name) + bytes((options,))
    return packet(PacketType.SUBSCRIBE << 4 | 2, body)
