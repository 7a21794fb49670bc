"""A small HTTP server for GET: one thread for all connections, of which there are few, each open for a few seconds.

A client that sends half a header, reads nothing, or resets its connection costs one entry until its time is up. Where
too many are open, the oldest makes room for the next one. Every answer ends its connection.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final, NamedTuple

MOST_CONNECTIONS: Final = 64
LIMIT_S: Final = 5.0
"""From the beginning of a connection to the end of its answer."""
_MOST_HEADER_BYTES: Final = 16 * 1024
_READ_BYTES: Final = 4096
_TURN_S: Final = 1.0
_REFUSED_AGAIN_S: Final = 0.05
_BACKLOG: Final = 128


class HttpAnswer(NamedTuple):
    """A response."""

    status: int
    content_type: str
    payload: bytes


class _HttpConnection:
    __slots__ = ("ends_s", "header", "left", "socket")

    def __init__(self, accepted: socket.socket, ends_s: float) -> None:
        self.socket = accepted
        self.ends_s = ends_s
        self.header = bytearray()
        self.left = memoryview(b"")
        """The unsent rest of the response."""


class SmallServer:
    """Serves `respond(path)` until `close`. Raises `OSError` where nothing can listen."""

    def __init__(self, respond: Callable[[str], HttpAnswer], *, host: str, port: int, name: str) -> None:
        self._respond = respond
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self._listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._wakes, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._connections: dict[socket.socket, _HttpConnection] = {}
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End. Answers under way are cut off."""
        self._is_closed = True
        with suppress(OSError):
            self._wakes.send(b"x")
        self._thread.join(5)

    def _serve(self) -> None:
        try:
            while not self._is_closed:
                ready = self._selector.select(self._patience_s())
                for key, _ in ready:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj in self._connections:
                        self._go_on(self._connections[key.fileobj])
                now_s = time.monotonic()
                for connection in [each for each in self._connections.values() if each.ends_s <= now_s]:
                    self._end(connection)
        finally:
            for connection in list(self._connections.values()):
                self._end(connection)
            self._selector.close()
            for each in (self._listener, self._wakes, self._woken):
                each.close()

    def _patience_s(self) -> float:
        ends_s = min((each.ends_s for each in self._connections.values()), default=None)
        return _TURN_S if ends_s is None else max(0.0, min(_TURN_S, ends_s - time.monotonic()))

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:  # the process has no file descriptors left, or the client has gone
            time.sleep(_REFUSED_AGAIN_S)
            return
        if len(self._connections) >= MOST_CONNECTIONS:
            self._end(min(self._connections.values(), key=lambda each: each.ends_s))
        accepted.setblocking(False)
        self._connections[accepted] = _HttpConnection(accepted, time.monotonic() + LIMIT_S)
        self._selector.register(accepted, selectors.EVENT_READ)

    def _go_on(self, connection: _HttpConnection) -> None:
        try:
            is_over = self._write(connection) if connection.left else self._read(connection)
        except BlockingIOError:
            return
        except OSError:  # it was reset: no client waits for the response
            is_over = True
        if is_over:
            self._end(connection)

    def _read(self, connection: _HttpConnection) -> bool:
        """Read. Returns whether the connection has ended."""
        came = connection.socket.recv(_READ_BYTES)
        if not came:
            return True
        connection.header += came
        if b"\r\n\r\n" in connection.header or b"\n\n" in connection.header:
            connection.left = memoryview(self._answer(bytes(connection.header)))
        elif len(connection.header) > _MOST_HEADER_BYTES:
            connection.left = memoryview(_response(_plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)))
        else:
            return False
        self._selector.modify(connection.socket, selectors.EVENT_WRITE)
        return self._write(connection)

    def _write(self, connection: _HttpConnection) -> bool:
        """Write. Returns whether everything is sent."""
        sent = connection.socket.send(connection.left)
        connection.left = connection.left[sent:]
        return not connection.left

    def _answer(self, header: bytes) -> bytes:
        line = header.split(b"\n", 1)[0].strip().split(b" ")
        if len(line) != 3 or not line[2].startswith(b"HTTP/"):
            return _response(_plain(HTTPStatus.BAD_REQUEST))
        if line[0] not in (b"GET", b"HEAD"):
            return _response(_plain(HTTPStatus.METHOD_NOT_ALLOWED))
        try:
            answer = self._respond(line[1].decode("latin-1"))
        except Exception as error:  # the thread serves on, whatever is wrong
            answer = _plain(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
        return _response(answer, has_body=line[0] == b"GET")

    def _end(self, connection: _HttpConnection) -> None:
        del self._connections[connection.socket]
        self._selector.unregister(connection.socket)
        with suppress(OSError):
            connection.socket.close()


def _plain(status: HTTPStatus, text: str = "") -> HttpAnswer:
    return HttpAnswer(status, "text/plain; charset=utf-8", f"{text or status.phrase}\n".encode())


def _response(answer: HttpAnswer, *, has_body: bool = True) -> bytes:
    status = HTTPStatus(answer.status)
    header = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.payload)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return header.encode() + (answer.payload if has_body else b"")
