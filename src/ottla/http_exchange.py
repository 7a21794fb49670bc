"""One HTTP exchange on a connection of its own, bounded in time and size as a whole.

A socket's own time-out restarts with every byte, so a server that drips its status line, the sizes of its chunks, or
`100 Continue` for ever is never late for it. Here each read and write gets what is left of one deadline. Names are
looked up by the resolver, which has time-outs of its own.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, Final

MOST_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of a response: its headers, its body, and anything before them."""


def exchange(
    parts: urllib.parse.SplitResult,
    method: str,
    path: str,
    *,
    body: bytes | None,
    headers: Mapping[str, str],
    tls: ssl.SSLContext | None,
    timeout_s: float,
    monotonic: Callable[[], float] = time.monotonic,
) -> tuple[int, bytes]:
    """Send a request to the address in `parts`. Returns the response's status and its whole body.

    Raises `OSError` (a `TimeoutError` after `timeout_s`) and `http.client.HTTPException`.
    """
    deadline = _Deadline(timeout_s, monotonic)
    is_tls = parts.scheme == "https"
    host, port = parts.hostname or "", parts.port or (443 if is_tls else 80)
    wire: socket.socket = _connected(host, port, deadline)
    try:
        if is_tls:
            wire.settimeout(deadline.left_s())  # of the whole handshake
            wire = (tls or ssl.create_default_context()).wrap_socket(wire, server_hostname=host)
        connection = http.client.HTTPConnection(host, port)
        connection.default_port = 443 if is_tls else 80
        connection.sock = _BoundedSocket(wire, deadline)
        connection.request(method, path, body=body, headers=dict(headers))
        response = connection.getresponse()
        return response.status, _body_of(response)
    finally:
        wire.close()


class _Deadline:
    def __init__(self, timeout_s: float, monotonic: Callable[[], float]) -> None:
        self._timeout_s = timeout_s
        self._monotonic = monotonic
        self._at_s = monotonic() + timeout_s

    def left_s(self) -> float:
        """Return the seconds left. Raises `TimeoutError` when nothing is left."""
        left_s = self._at_s - self._monotonic()
        if left_s <= 0:
            raise TimeoutError(f"the response was not complete after {self._timeout_s:g} s")
        return left_s


class _BoundedSocket:
    """The methods of a socket that `http.client` uses."""

    def __init__(self, wire: socket.socket, deadline: _Deadline) -> None:
        self._wire = wire
        self._deadline = deadline

    def sendall(self, data: Any) -> None:
        left = memoryview(data)
        while left:
            self._wire.settimeout(self._deadline.left_s())
            left = left[self._wire.send(left) :]

    def makefile(self, mode: str, *args: Any) -> io.BufferedReader:
        return io.BufferedReader(_BoundedReader(self._wire, self._deadline))

    def close(self) -> None:
        """Leave it open: `http.client` closes a connection before it has read the last response of it."""


class _BoundedReader(io.RawIOBase):
    def __init__(self, wire: socket.socket, deadline: _Deadline) -> None:
        self._wire = wire
        self._deadline = deadline
        self._bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        self._wire.settimeout(self._deadline.left_s())
        try:
            count = self._wire.recv_into(into)
        except TimeoutError:
            self._deadline.left_s()  # says how long that was
            raise
        self._bytes += count
        if self._bytes > MOST_BYTES:
            raise OSError(f"the response is longer than {MOST_BYTES:,} bytes")
        return count


def _connected(host: str, port: int, deadline: _Deadline) -> socket.socket:
    problem: OSError | None = None
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        wire = socket.socket(family, kind, protocol)
        try:
            wire.settimeout(deadline.left_s())
            wire.connect(address)
            return wire
        except OSError as error:
            wire.close()
            problem = error
    raise problem or OSError(f"{host} has no address")


def _body_of(response: http.client.HTTPResponse) -> bytes:
    body = bytearray()
    while chunk := response.read1(65_536):
        body += chunk
    if response.length:
        raise OSError(f"the response ended {response.length:,} bytes too early")
    return bytes(body)
