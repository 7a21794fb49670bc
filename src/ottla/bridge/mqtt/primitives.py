"""Primitive types of MQTT, read from hostile bytes and written.

A read past the end, an overlong length and invalid text raise `PacketError` with the reason code of MQTT 5.0. Nothing
is allocated by a length before that length is compared with the bytes that are there.
"""

from __future__ import annotations

from typing import Any, Final

from ottla.bridge.mqtt.codes import (
    BINARY,
    BYTE,
    FOUR,
    PAIR,
    PROPERTY_TYPES,
    TEXT,
    TWO,
    VARIABLE,
    Property,
    Reason,
)

MOST_REMAINING: Final = 268_435_455
"""The largest remaining length of a packet, in bytes."""

MOST_USER_PROPERTIES: Final = 1_000
"""User properties of one packet from a client. An empty one has five bytes, and costs some microseconds: a packet of
1 MiB could hold an event loop for two seconds."""

Properties = dict[int, Any]
"""Property identifier → value; user properties are a list of (name, value)."""

NO_PROPERTIES: Final[Properties] = {}
"""Of packets that have none. Nothing is added to it."""


class PacketError(Exception):
    """Close the connection with this reason: the peer broke the protocol or a limit."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        """The reason code for a CONNACK or DISCONNECT of MQTT 5.0."""


class Reader:
    """Reads one packet's body from its beginning."""

    __slots__ = ("_at", "_body", "_end")

    def __init__(self, body: bytes, at: int = 0, end: int | None = None) -> None:
        self._body = body
        self._at = at
        self._end = len(body) if end is None else end

    @property
    def left(self) -> int:
        """Return the number of unread bytes."""
        return self._end - self._at

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        at = self._at
        if count > self._end - at:
            raise PacketError(Reason.MALFORMED_PACKET, f"found {self._end - at} bytes, wanted {count} more")
        self._at = at + count
        return self._body[at : at + count]

    def rest(self) -> bytes:
        """Return all remaining bytes."""
        return self.take(self.left)

    def byte(self) -> int:
        """Return one unsigned byte."""
        return self.take(1)[0]

    def two(self) -> int:
        """Return a two-byte integer."""
        return int.from_bytes(self.take(2), "big")

    def four(self) -> int:
        """Return a four-byte integer."""
        return int.from_bytes(self.take(4), "big")

    def variable(self) -> int:
        """Return a variable byte integer. Raises `PacketError` for a fifth byte and for an encoding with zeros to
        spare."""
        found = shift = 0
        while True:
            byte = self.byte()
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0 and shift:
                    raise PacketError(Reason.MALFORMED_PACKET, "a variable byte integer is longer than it needs to be")
                return found
            shift += 7
            if shift > 21:
                raise PacketError(Reason.MALFORMED_PACKET, "a variable byte integer has more than four bytes")

    def binary(self) -> bytes:
        """Return binary data with its two-byte length before it."""
        return self.take(self.two())

    def text(self, what: str) -> str:
        """Return UTF-8 text with its two-byte length before it."""
        return utf8(self.binary(), what)

    def properties(self, allowed: frozenset[int], *, most_pairs: int = MOST_USER_PROPERTIES) -> Properties:
        """Return the properties. Raises `PacketError` for one that the packet may not have, or has twice, and for more
        than `most_pairs` user properties."""
        length = self.variable()
        if length > self.left:
            raise PacketError(Reason.MALFORMED_PACKET, f"properties: found {self.left} bytes, wanted {length}")
        if not length:
            return {}
        part = Reader(self._body, self._at, self._at + length)
        self._at += length
        found: Properties = {}
        while part.left:
            name = part.variable()
            kind = PROPERTY_TYPES.get(name)
            if kind is None:
                raise PacketError(Reason.MALFORMED_PACKET, f"property {name:#04x} is not known")
            if name not in allowed:
                raise PacketError(Reason.PROTOCOL_ERROR, f"property {Property(name).name} is not allowed here")
            if kind == PAIR:
                pair = part.text("user property name"), part.text("user property value")
                pairs = found.setdefault(name, [])
                pairs.append(pair)
                if len(pairs) > most_pairs:
                    raise PacketError(Reason.QUOTA_EXCEEDED, f"more than {most_pairs:,} user properties")
                continue
            value = part._value(kind, name)
            if name == Property.SUBSCRIPTION_ID:
                found.setdefault(name, []).append(value)
                continue
            if name in found:
                raise PacketError(Reason.PROTOCOL_ERROR, f"property {Property(name).name} is there twice")
            found[name] = value
        return found

    def _value(self, kind: int, name: int) -> Any:
        if kind == TEXT:
            return self.text(Property(name).name)
        if kind == TWO:
            return self.two()
        if kind == FOUR:
            return self.four()
        if kind == BYTE:
            return self.byte()
        return self.variable() if kind == VARIABLE else self.binary()

    def done(self, what: str) -> None:
        """Raise `PacketError` unless all is read."""
        if self.left:
            raise PacketError(Reason.MALFORMED_PACKET, f"{what}: {self.left} bytes too many")


def utf8(data: bytes, what: str) -> str:
    """Return the text. Raises `PacketError` for invalid UTF-8, surrogates and U+0000 (MQTT-1.5.4-1, -2)."""
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise PacketError(Reason.MALFORMED_PACKET, f"{what}: not UTF-8 at byte {error.start}") from None
    if "\0" in text:
        raise PacketError(Reason.MALFORMED_PACKET, f"{what}: has the character U+0000")
    return text


def variable(number: int) -> bytes:
    """Encode a variable byte integer."""
    if number < 0x80:
        return bytes((number,))
    encoded = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        if not number:
            encoded.append(low)
            return bytes(encoded)
        encoded.append(low | 0x80)


def binary(data: bytes) -> bytes:
    """Encode binary data. Raises `ValueError` for more than 65,535 bytes."""
    if len(data) > 0xFFFF:
        raise ValueError(f"found {len(data):,} bytes, wanted at most 65,535")
    return len(data).to_bytes(2, "big") + data


def text(given: str) -> bytes:
    """Encode UTF-8 text."""
    return binary(given.encode())


def properties(given: Properties) -> bytes:
    """Encode properties with their length before them."""
    encoded = bytearray()
    for name, value in given.items():
        kind = PROPERTY_TYPES[name]
        values = value if isinstance(value, list) else [value]
        for each in values:
            encoded.append(name)
            if kind == PAIR:
                encoded += text(each[0]) + text(each[1])
            elif kind == TEXT:
                encoded += text(each)
            elif kind == BINARY:
                encoded += binary(each)
            elif kind == VARIABLE:
                encoded += variable(each)
            else:
                encoded += each.to_bytes({BYTE: 1, TWO: 2, FOUR: 4}[kind], "big")
    return variable(len(encoded)) + bytes(encoded)


def packet(first: int, body: bytes) -> bytes:
    """Encode a packet: its first byte, its remaining length, its body."""
    return bytes((first,)) + variable(len(body)) + body
