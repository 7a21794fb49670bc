"""Numbers of MQTT 3.1.1 and 5.0: packet types, reason codes, and the properties with their types."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

V311: Final = 4
V5: Final = 5


class PacketType(IntEnum):
    """The upper four bits of a packet's first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class Reason(IntEnum):
    """Reason codes of MQTT 5.0; those from 0x80 are failures."""

    SUCCESS = 0x00
    UNSPECIFIED = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_ERROR = 0x83
    UNSUPPORTED_VERSION = 0x84
    BAD_CLIENT_ID = 0x85
    BAD_LOGIN = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    SHUTTING_DOWN = 0x8B
    BAD_AUTH_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_NAME_INVALID = 0x90
    PACKET_ID_IN_USE = 0x91
    PACKET_ID_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    QUOTA_EXCEEDED = 0x97
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B


CONNACK_311: Final = {
    Reason.UNSUPPORTED_VERSION: 1,
    Reason.BAD_CLIENT_ID: 2,
    Reason.SERVER_UNAVAILABLE: 3,
    Reason.SERVER_BUSY: 3,
    Reason.BAD_LOGIN: 4,
    Reason.NOT_AUTHORIZED: 5,
}
"""The return code of a 3.1.1 CONNACK for a reason; the connection is closed without one for any other."""


class Property(IntEnum):
    """Identifiers of properties."""

    PAYLOAD_FORMAT = 0x01
    MESSAGE_EXPIRY = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_ID = 0x0B
    SESSION_EXPIRY = 0x11
    ASSIGNED_CLIENT_ID = 0x12
    SERVER_KEEP_ALIVE = 0x13
    AUTH_METHOD = 0x15
    AUTH_DATA = 0x16
    REQUEST_PROBLEM = 0x17
    WILL_DELAY = 0x18
    REQUEST_RESPONSE = 0x19
    RESPONSE_INFORMATION = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARDS_AVAILABLE = 0x28
    SUBSCRIPTION_IDS_AVAILABLE = 0x29
    SHARED_SUBSCRIPTIONS_AVAILABLE = 0x2A


BYTE, TWO, FOUR, VARIABLE, TEXT, BINARY, PAIR = range(7)

PROPERTY_TYPES: Final[dict[int, int]] = {
    Property.PAYLOAD_FORMAT: BYTE,
    Property.MESSAGE_EXPIRY: FOUR,
    Property.CONTENT_TYPE: TEXT,
    Property.RESPONSE_TOPIC: TEXT,
    Property.CORRELATION_DATA: BINARY,
    Property.SUBSCRIPTION_ID: VARIABLE,
    Property.SESSION_EXPIRY: FOUR,
    Property.ASSIGNED_CLIENT_ID: TEXT,
    Property.SERVER_KEEP_ALIVE: TWO,
    Property.AUTH_METHOD: TEXT,
    Property.AUTH_DATA: BINARY,
    Property.REQUEST_PROBLEM: BYTE,
    Property.WILL_DELAY: FOUR,
    Property.REQUEST_RESPONSE: BYTE,
    Property.RESPONSE_INFORMATION: TEXT,
    Property.SERVER_REFERENCE: TEXT,
    Property.REASON_STRING: TEXT,
    Property.RECEIVE_MAXIMUM: TWO,
    Property.TOPIC_ALIAS_MAXIMUM: TWO,
    Property.TOPIC_ALIAS: TWO,
    Property.MAXIMUM_QOS: BYTE,
    Property.RETAIN_AVAILABLE: BYTE,
    Property.USER_PROPERTY: PAIR,
    Property.MAXIMUM_PACKET_SIZE: FOUR,
    Property.WILDCARDS_AVAILABLE: BYTE,
    Property.SUBSCRIPTION_IDS_AVAILABLE: BYTE,
    Property.SHARED_SUBSCRIPTIONS_AVAILABLE: BYTE,
}
"""How the value of each property is encoded."""

_P = Property
ALLOWED_IN: Final[dict[int, frozenset[int]]] = {
    PacketType.CONNECT: frozenset(
        {
            _P.SESSION_EXPIRY,
            _P.RECEIVE_MAXIMUM,
            _P.MAXIMUM_PACKET_SIZE,
            _P.TOPIC_ALIAS_MAXIMUM,
            _P.REQUEST_RESPONSE,
            _P.REQUEST_PROBLEM,
            _P.USER_PROPERTY,
            _P.AUTH_METHOD,
            _P.AUTH_DATA,
        }
    ),
    PacketType.PUBLISH: frozenset(
        {
            _P.PAYLOAD_FORMAT,
            _P.MESSAGE_EXPIRY,
            _P.TOPIC_ALIAS,
            _P.RESPONSE_TOPIC,
            _P.CORRELATION_DATA,
            _P.USER_PROPERTY,
            _P.SUBSCRIPTION_ID,
            _P.CONTENT_TYPE,
        }
    ),
    PacketType.CONNACK: frozenset(
        {
            _P.SESSION_EXPIRY,
            _P.RECEIVE_MAXIMUM,
            _P.MAXIMUM_QOS,
            _P.RETAIN_AVAILABLE,
            _P.MAXIMUM_PACKET_SIZE,
            _P.ASSIGNED_CLIENT_ID,
            _P.TOPIC_ALIAS_MAXIMUM,
            _P.REASON_STRING,
            _P.USER_PROPERTY,
            _P.WILDCARDS_AVAILABLE,
            _P.SUBSCRIPTION_IDS_AVAILABLE,
            _P.SHARED_SUBSCRIPTIONS_AVAILABLE,
            _P.SERVER_KEEP_ALIVE,
            _P.RESPONSE_INFORMATION,
            _P.SERVER_REFERENCE,
            _P.AUTH_METHOD,
            _P.AUTH_DATA,
        }
    ),
    PacketType.DISCONNECT: frozenset({_P.SESSION_EXPIRY, _P.REASON_STRING, _P.USER_PROPERTY, _P.SERVER_REFERENCE}),
    PacketType.SUBSCRIBE: frozenset({_P.SUBSCRIPTION_ID, _P.USER_PROPERTY}),
    **{
        kind: frozenset({_P.REASON_STRING, _P.USER_PROPERTY})
        for kind in (
            PacketType.PUBACK,
            PacketType.PUBREC,
            PacketType.PUBREL,
            PacketType.PUBCOMP,
            PacketType.SUBACK,
            PacketType.UNSUBSCRIBE,
            PacketType.UNSUBACK,
        )
    },
}
"""The properties that each packet may have."""

WILL_PROPERTIES: Final = frozenset(
    {
        _P.WILL_DELAY,
        _P.PAYLOAD_FORMAT,
        _P.MESSAGE_EXPIRY,
        _P.CONTENT_TYPE,
        _P.RESPONSE_TOPIC,
        _P.CORRELATION_DATA,
        _P.USER_PROPERTY,
    }
)
"""The properties of a will."""
