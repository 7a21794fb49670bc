"""The server's side of WebSocket (RFC 6455), as far as MQTT needs it: binary messages in, bytes out. No socket.

A client's frames carry parts of one stream of MQTT packets, however they are cut (MQTT-6.0.0-2). Extensions are not
negotiated. Everything that a client sends is bounded: the header of its request, the length of a frame.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_MOST_HEADER_BYTES: Final = 8_192
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10


class WebSocketError(Exception):
    """Close the connection: the peer does not speak WebSocket, or not for MQTT."""


class ServerWebSocket:
    """One connection. `receive` returns the bytes of MQTT that came; `out` has what must be sent."""

    def __init__(self, *, max_frame_bytes: int) -> None:
        self._most = max_frame_bytes
        self._rest = bytearray()
        self._is_open = False
        self._in_message = False
        self.out = bytearray()
        self.is_closed = False

    def receive(self, data: bytes) -> bytes:
        """Return the payload that is complete now. Raises `WebSocketError`."""
        self._rest += data
        if not self._is_open and not self._handshake():
            return b""
        came = bytearray()
        while not self.is_closed:
            payload = self._frame()
            if payload is None:
                break
            came += payload
        return bytes(came)

    def wrap(self, data: bytes) -> bytes:
        """Return the bytes as one binary frame."""
        return _frame(_BINARY, data)

    def close(self) -> bytes:
        """Return the closing frame."""
        return b"" if self.is_closed or not self._is_open else _frame(_CLOSE, (1000).to_bytes(2, "big"))

    def _handshake(self) -> bool:
        end = self._rest.find(b"\r\n\r\n")
        if end < 0:
            if len(self._rest) > _MOST_HEADER_BYTES:
                raise WebSocketError(f"the request's header is over {_MOST_HEADER_BYTES:,} bytes")
            return False
        head = bytes(self._rest[:end])
        del self._rest[: end + 4]
        request, *lines = head.split(b"\r\n")
        fields = {}
        for line in lines:
            name, _, value = line.partition(b":")
            fields[name.strip().lower()] = value.strip()
        key = fields.get(b"sec-websocket-key", b"")
        offered = [each.strip() for each in fields.get(b"sec-websocket-protocol", b"").split(b",")]
        problem = None
        if not request.startswith(b"GET ") or fields.get(b"upgrade", b"").lower() != b"websocket":
            problem = b"wanted a GET that upgrades to websocket"
        elif fields.get(b"sec-websocket-version") != b"13" or len(key) != 24:
            problem = b"wanted Sec-WebSocket-Version 13 and a key"
        elif b"mqtt" not in offered:
            problem = b"wanted Sec-WebSocket-Protocol: mqtt"
        if problem is not None:
            self.out += b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n" + problem
            raise WebSocketError(problem.decode())
        answer = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
        self.out += (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Accept: " + answer + b"\r\n\r\n"
        )
        self._is_open = True
        return True

    def _frame(self) -> bytes | None:
        """Return the payload of the next frame, b"" for a control frame, None while it is incomplete."""
        rest = self._rest
        if len(rest) < 2:
            return None
        first, second = rest[0], rest[1]
        code, is_last = first & 15, bool(first & 0x80)
        if first & 0x70 or not second & 0x80:
            raise WebSocketError("a frame with reserved bits, or without a mask")
        length, at = second & 0x7F, 2
        if length >= 126:
            at += 2 if length == 126 else 8
            if len(rest) < at:
                return None
            length = int.from_bytes(rest[2:at], "big")
        is_control = code >= 8
        if length > (125 if is_control else self._most):
            raise WebSocketError(f"a frame of {length:,} bytes")
        if len(rest) < at + 4 + length:
            return None
        mask = bytes(rest[at : at + 4])
        payload = _unmasked(bytes(rest[at + 4 : at + 4 + length]), mask)
        del rest[: at + 4 + length]
        if is_control:
            if not is_last or code > _PONG:
                raise WebSocketError("a control frame in parts, or of an unknown kind")
            self._control(code, payload)
            return b""
        if code not in (_BINARY, _CONTINUATION) or (code == _CONTINUATION) != self._in_message:
            raise WebSocketError(f"a frame with opcode {code}, wanted binary messages")
        self._in_message = not is_last
        return payload

    def _control(self, code: int, payload: bytes) -> None:
        if code == _PING:
            self.out += _frame(_PONG, payload)
        elif code == _CLOSE:
            self.out += _frame(_CLOSE, payload[:2])
            self.is_closed = True


def _unmasked(data: bytes, mask: bytes) -> bytes:
    """XOR with the repeated mask, as one big integer: bytes one by one would take a hundred times as long."""
    size = len(data)
    if not size:
        return b""
    repeated = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(size, "big")


def _frame(code: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        return bytes((0x80 | code, size)) + payload
    if size < 65_536:
        return bytes((0x80 | code, 126)) + size.to_bytes(2, "big") + payload
    return bytes((0x80 | code, 127)) + size.to_bytes(8, "big") + payload
