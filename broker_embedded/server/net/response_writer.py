"""Gets the bytes of responses into a socket with as few copies and system calls as they need.

Small responses are joined and sent in one call, larger ones written from their pieces with writev, and file regions
(what a large fetch does not hold in memory) are sent by the kernel with sendfile: they never pass through Python. A
region that the socket does not take at once waits here as a region: a client that reads slowly costs some
`REGION_PIECE`, not the size of its response.

asyncio's transport keeps the right to the socket while it has bytes of its own, so nothing is sent past it then. A
transport without a socket (descriptor -1) gets everything as bytes.
"""

from __future__ import annotations

import asyncio
import os

from ottla_wire.protocol.region import Part, Region

Parts = list[Part]

JOIN_LIMIT = 32 * 1024
"""Responses up to this size are joined and sent in one call; larger ones are written from their pieces with writev."""

REGION_PIECE = 128 * 1024
"""Bytes of a region that are read and buffered in the transport when the socket is full; when they are sent, sendfile
is tried again. Small pieces leave more to sendfile; buffers are passed to the transport whole."""

HAS_SENDFILE = hasattr(os, "sendfile")
_HAS_WRITEV = hasattr(os, "writev")
_IOV_MAX = 1024


class ResponseWriter:
    """The sending half of one connection. Methods raise OSError if the socket or a file failed."""

    __slots__ = ("_file_descriptor", "_has_socket", "_transport", "_unsent", "is_paused")

    def __init__(self, transport: asyncio.Transport, file_descriptor: int) -> None:
        self._transport = transport
        self._file_descriptor = file_descriptor
        self._has_socket = file_descriptor >= 0
        self._unsent: Parts = []
        self.is_paused = False
        """The transport's buffer is full: the client does not read what it gets."""
        transport.set_write_buffer_limits(high=REGION_PIECE // 2, low=0)  # resumed when empty: then regions can be sent

    def write(self, parts: Parts) -> None:
        """Send a response after everything that was written before."""
        if self._unsent:
            self._unsent += parts
        elif sum(map(len, parts)) <= JOIN_LIMIT:
            self._transport.write(b"".join(parts))  # type: ignore[arg-type]  # regions are larger than the limit
        else:
            self._unsent = parts
            self._go_on()

    def resume(self) -> None:
        """Write on: the transport's buffer has room again."""
        self.is_paused = False
        self._go_on()

    def hand_over(self) -> None:
        """Give the transport everything: the connection is about to be closed."""
        while self._unsent:
            self._transport.write(self._next_piece())

    def _go_on(self) -> None:
        transport = self._transport
        while self._unsent and not self.is_paused:
            if self._has_socket and not transport.get_write_buffer_size():
                self._send()
                if not self._unsent:
                    return
            transport.write(self._next_piece())

    def _send(self) -> None:
        """Send directly what the socket takes."""
        socket_fd, parts = self._file_descriptor, self._unsent
        at = 0
        try:
            while at < len(parts):
                part = parts[at]
                if isinstance(part, Region):
                    sent = part.send_to(socket_fd)
                    if sent < len(part):
                        parts[at] = part.without_first(sent)
                    else:
                        at += 1
                elif _HAS_WRITEV:
                    at = _writev(socket_fd, parts, at)
                else:
                    break
        except BlockingIOError:
            pass
        del parts[:at]

    def _next_piece(self) -> bytes:
        """Return the buffers up to the next region, and a piece of that."""
        unsent = self._unsent
        gathered: list[bytes | bytearray | memoryview] = []
        at = 0
        for part in unsent:
            if isinstance(part, Region):
                gathered += part.first(REGION_PIECE).buffers()
                if len(part) > REGION_PIECE:
                    unsent[at] = part.without_first(REGION_PIECE)
                else:
                    at += 1
                break
            gathered.append(part)
            at += 1
        del unsent[:at]
        return b"".join(gathered)


def _writev(socket_fd: int, parts: Parts, at: int) -> int:
    """Write the run of buffers that starts at `at`; returns the index of the first part that is not wholly sent."""
    run: list[bytes | bytearray | memoryview] = []
    for part in parts[at : at + _IOV_MAX]:
        if isinstance(part, Region):
            break
        run.append(part)
    sent = os.writev(socket_fd, run)
    for part in run:
        if sent < len(part):
            parts[at] = memoryview(part)[sent:]
            break
        sent -= len(part)
        at += 1
    return at
