"""Reads bodies of packets. Every function raises `PacketError` for what the standard does not allow."""

from __future__ import annotations

from typing import Final

from ottla.bridge.mqtt.codes import ALLOWED_IN, V5, V311, WILL_PROPERTIES, PacketType, Property, Reason
from ottla.bridge.mqtt.packets import Ack, Connack, Connect, Disconnect, Publish, Suback, Will
from ottla.bridge.mqtt.primitives import MOST_USER_PROPERTIES, PacketError, Properties, Reader, utf8

_OF_PUBLISH: Final = ALLOWED_IN[PacketType.PUBLISH]


def decode_connect(flags: int, body: bytes) -> Connect:
    """Return the CONNECT. Raises with `UNSUPPORTED_VERSION` for a version other than 3.1.1 and 5.0."""
    if flags:
        raise PacketError(Reason.MALFORMED_PACKET, f"CONNECT: found flags {flags:#x}, wanted 0")
    read = Reader(body)
    name = read.binary()
    version = read.byte()
    if name != b"MQTT" or version not in (V311, V5):
        raise PacketError(
            Reason.UNSUPPORTED_VERSION,
            f"CONNECT: found protocol {name[:16]!r} level {version}, wanted MQTT 3.1.1 (4) or 5.0 (5)",
        )
    bits = read.byte()
    keep_alive_s = read.two()
    if bits & 0x01:
        raise PacketError(Reason.MALFORMED_PACKET, "CONNECT: the reserved flag is set")
    has_will, will_qos, will_retain = bool(bits & 0x04), bits >> 3 & 3, bool(bits & 0x20)
    if will_qos == 3 or (not has_will and (will_qos or will_retain)):
        raise PacketError(Reason.MALFORMED_PACKET, "CONNECT: the will's flags contradict each other")
    if version == V311 and bits & 0x40 and not bits & 0x80:
        raise PacketError(Reason.MALFORMED_PACKET, "CONNECT: a password without a user name")
    found = read.properties(ALLOWED_IN[PacketType.CONNECT]) if version == V5 else {}
    for name_, least in ((Property.RECEIVE_MAXIMUM, 1), (Property.MAXIMUM_PACKET_SIZE, 1)):
        if found.get(name_, least) < least:
            raise PacketError(Reason.PROTOCOL_ERROR, f"CONNECT: {name_.name} is 0")
    connect = Connect(
        client_id=read.text("client id"),
        version=version,
        clean_start=bool(bits & 0x02),
        keep_alive_s=keep_alive_s,
        properties=found,
    )
    if has_will:
        about = read.properties(WILL_PROPERTIES) if version == V5 else {}
        topic = topic_name(read.binary(), "will topic")
        if not topic:
            raise PacketError(Reason.MALFORMED_PACKET, "CONNECT: an empty will topic")
        connect.will = Will(topic=topic, payload=read.binary(), qos=will_qos, retain=will_retain, properties=about)
    if bits & 0x80:
        connect.username = read.text("user name")
    if bits & 0x40:
        connect.password = read.binary()
    read.done("CONNECT")
    return connect


def decode_publish(flags: int, body: bytes, version: int, *, most_pairs: int = MOST_USER_PROPERTIES) -> Publish:
    """Return the PUBLISH with at most `most_pairs` user properties. Its topic is empty where an alias stands for it."""
    qos = flags >> 1 & 3
    size = len(body)
    at = 2 + (body[0] << 8 | body[1]) if size >= 2 else size + 1
    if at > size:
        raise PacketError(Reason.MALFORMED_PACKET, "PUBLISH: shorter than its topic")
    topic = topic_name(body[2:at], "topic")
    packet_id = 0
    if qos:
        if qos == 3:
            raise PacketError(Reason.MALFORMED_PACKET, "PUBLISH: QoS 3")
        if at + 2 > size:
            raise PacketError(Reason.MALFORMED_PACKET, "PUBLISH: no packet id")
        packet_id = body[at] << 8 | body[at + 1]
        if not packet_id:
            raise PacketError(Reason.PROTOCOL_ERROR, "PUBLISH: packet id 0")
        at += 2
    elif flags & 8:
        raise PacketError(Reason.MALFORMED_PACKET, "PUBLISH: DUP at QoS 0")
    found: Properties | None = None
    if version == V5:
        if at < size and not body[at]:
            at += 1
        else:
            read = Reader(body, at)
            found = read.properties(_OF_PUBLISH, most_pairs=most_pairs)
            at = size - read.left
    if not topic and (found is None or Property.TOPIC_ALIAS not in found):
        raise PacketError(Reason.PROTOCOL_ERROR, "PUBLISH: an empty topic")
    return Publish(
        topic,
        body[at:],
        qos=qos,
        packet_id=packet_id,
        retain=bool(flags & 1),
        dup=bool(flags & 8),
        properties=found,
    )


def topic_name(data: bytes, what: str) -> str:
    """Return the topic of a message. Raises for wildcards, which only filters have."""
    topic = utf8(data, what)
    if "+" in topic or "#" in topic:
        raise PacketError(Reason.TOPIC_NAME_INVALID, f"{what}: found a wildcard")
    return topic


def decode_ack(kind: PacketType, flags: int, body: bytes, version: int) -> Ack:
    """Return a PUBACK, PUBREC, PUBREL or PUBCOMP."""
    wanted = 2 if kind == PacketType.PUBREL else 0
    if flags != wanted:
        raise PacketError(Reason.MALFORMED_PACKET, f"{kind.name}: found flags {flags:#x}, wanted {wanted:#x}")
    read = Reader(body)
    ack = Ack(packet_id=read.two())
    if not ack.packet_id:
        raise PacketError(Reason.PROTOCOL_ERROR, f"{kind.name}: packet id 0")
    if version == V5 and read.left:
        ack.code = read.byte()
        if read.left:
            ack.properties = read.properties(ALLOWED_IN[kind])
    read.done(kind.name)
    return ack


def decode_disconnect(flags: int, body: bytes, version: int) -> Disconnect:
    """Return the DISCONNECT."""
    if flags:
        raise PacketError(Reason.MALFORMED_PACKET, f"DISCONNECT: found flags {flags:#x}, wanted 0")
    read = Reader(body)
    found = Disconnect()
    if version == V5 and read.left:
        found.code = read.byte()
        if read.left:
            found.properties = read.properties(ALLOWED_IN[PacketType.DISCONNECT])
    read.done("DISCONNECT")
    return found


def decode_subscribe(kind: PacketType, flags: int, body: bytes, version: int) -> tuple[int, int]:
    """Return (packet id, number of filters) of a SUBSCRIBE or UNSUBSCRIBE that is refused anyway."""
    if flags != 2:
        raise PacketError(Reason.MALFORMED_PACKET, f"{kind.name}: found flags {flags:#x}, wanted 2")
    read = Reader(body)
    packet_id = read.two()
    if not packet_id:
        raise PacketError(Reason.PROTOCOL_ERROR, f"{kind.name}: packet id 0")
    if version == V5:
        read.properties(ALLOWED_IN[kind])
    count = 0
    while read.left:
        read.text("topic filter")
        if kind == PacketType.SUBSCRIBE:
            read.byte()
        count += 1
    if not count:
        raise PacketError(Reason.PROTOCOL_ERROR, f"{kind.name}: no topic filter")
    return packet_id, count


def decode_connack(body: bytes, version: int) -> Connack:
    """Return a server's CONNACK."""
    read = Reader(body)
    bits = read.byte()
    found = Connack(code=read.byte(), session_present=bool(bits & 1))
    if version == V5 and read.left:
        found.properties = read.properties(ALLOWED_IN[PacketType.CONNACK])
    read.done("CONNACK")
    return found


def decode_suback(body: bytes, version: int) -> Suback:
    """Return a server's SUBACK."""
    read = Reader(body)
    packet_id = read.two()
    found = read.properties(ALLOWED_IN[PacketType.SUBACK]) if version == V5 else {}
    return Suback(packet_id=packet_id, codes=tuple(read.rest()), properties=found)
