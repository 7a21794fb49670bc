"""The packets with which a listener refuses what a client asks for."""

from __future__ import annotations

from typing import Final

from ottla.bridge.mqtt.codes import CONNACK_311, V5, PacketType, Property, Reason
from ottla.bridge.mqtt.packet_encoding import encode_connack, encode_suback
from ottla.bridge.mqtt.packets import Connack
from ottla.bridge.mqtt.primitives import Properties

NO_SUBSCRIPTIONS: Final = "this listener takes messages for Kafka and delivers none: consume them from Kafka"


def refused_connect(reason: Reason, words: str, version: int, *, has_connect: bool) -> bytes:
    """Encode the CONNACK that refuses a connection; nothing where the client could not read one."""
    if version == V5 and (has_connect or reason == Reason.UNSUPPORTED_VERSION):
        about: Properties = {Property.REASON_STRING: words} if words else {}
        return encode_connack(Connack(code=reason, properties=about), V5)
    if reason in CONNACK_311:
        return encode_connack(Connack(code=CONNACK_311[reason]), version)
    return b""


def refused_subscription(kind: PacketType, packet_id: int, filters: int, version: int, *, in_words: bool) -> bytes:
    """Encode the answer to a SUBSCRIBE or UNSUBSCRIBE of so many filters. The connection stays open."""
    answer = PacketType.SUBACK if kind == PacketType.SUBSCRIBE else PacketType.UNSUBACK
    code = Reason.IMPLEMENTATION_ERROR if version == V5 else Reason.UNSPECIFIED
    return encode_suback(answer, packet_id, [code] * filters, version, NO_SUBSCRIPTIONS if in_words else "")
