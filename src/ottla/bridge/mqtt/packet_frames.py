"""Cuts a stream of bytes into MQTT packets.

A packet that is longer than the limit is refused as soon as its length has come, so at most one packet of the largest
size is kept. Bytes of an incomplete packet are looked at once: a peer that sends one byte at a time costs no more than
one that sends whole packets.
"""

from __future__ import annotations

from ottla.bridge.mqtt.codes import Reason
from ottla.bridge.mqtt.primitives import PacketError

Frame = tuple[int, bytes]
"""A packet's first byte and its body."""


class Framer:
    """The bytes of one connection."""

    __slots__ = ("_most", "_rest", "_wanted", "has_more")

    def __init__(self, *, max_packet_bytes: int) -> None:
        self._most = max_packet_bytes
        self._rest = bytearray()
        self._wanted = 2
        self.has_more = False
        """Whether packets may be left that the last call had no room for."""

    @property
    def kept(self) -> int:
        """Return the number of bytes of an incomplete packet."""
        return len(self._rest)

    def keep(self, data: bytes) -> None:
        """Take bytes whose packets are cut later. They are smaller than packets: each of those is some objects."""
        self._rest += data
        self.has_more = True

    def feed(self, data: bytes, *, most: int | None = None) -> list[Frame]:
        """Return the packets that are complete now, at most so many. Raises `PacketError` for one that is too large.

        The packets before a bad one are lost with it: the connection ends.
        """
        rest = self._rest
        if rest:
            rest += data
            if len(rest) < self._wanted:
                self.has_more = False
                return []
            data = bytes(rest)
            rest.clear()
        frames: list[Frame] = []
        at, size = 0, len(data)
        self._wanted = 2
        self.has_more = False
        while size - at >= 2:
            if len(frames) == most:
                self.has_more = True
                break
            length = data[at + 1]
            body = at + 2
            if length >= 0x80:
                length &= 0x7F
                shift = 7
                while True:
                    if body == size:
                        body = -1
                        break
                    byte = data[body]
                    body += 1
                    length |= (byte & 0x7F) << shift
                    if byte < 0x80:
                        if byte == 0:
                            raise PacketError(Reason.MALFORMED_PACKET, "the remaining length has a byte too many")
                        break
                    shift += 7
                    if shift > 21:
                        raise PacketError(Reason.MALFORMED_PACKET, "the remaining length has more than four bytes")
                if body < 0:
                    self._wanted = size - at + 1
                    break
            end = body + length
            if end - at > self._most:
                raise PacketError(
                    Reason.PACKET_TOO_LARGE, f"a packet of {end - at:,} bytes, the limit is {self._most:,} bytes"
                )
            if end > size:
                self._wanted = end - at
                break
            frames.append((data[at], data[body:end]))
            at = end
        if at < size:
            rest += data[at:]
        return frames
