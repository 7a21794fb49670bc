"""One client connection: bytes in, requests in order, responses in the same order.

What costs on this path is copying, so bytes are received into a buffer of our own (asyncio's BufferedProtocol). All
connections of a server share one receive buffer, which is free again when `buffer_updated` returns: an idle connection
holds no buffer. A frame that is not complete in it moves into a buffer of its own, and the rest is received straight
into that.

One request at a time is under way per connection, as Kafka mutes the channel: a handler that answers later parks the
connection, bytes that arrive meanwhile are kept (up to a limit, then the socket is not read), and order needs no
bookkeeping.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.promises import Promise
from broker_embedded.server.net.response_writer import JOIN_LIMIT, Parts, ResponseWriter

if TYPE_CHECKING:
    from broker_embedded.common.errors import BrokerError
    from broker_embedded.security.authenticator import SaslAuthenticator
    from broker_embedded.server.net.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

PARKED_BYTES = 256 * 1024
"""A parked connection's bytes are kept up to here; then its socket is not read until the pending request is answered.
"""

_ANONYMOUS = "User:ANONYMOUS"
"""A principal, as in `security.principal`, which is imported only with an authorizer."""

FIRST_FRAME_BUFFER = 64 * 1024
"""A new frame buffer starts this large and doubles as bytes really arrive: an announced size costs no memory."""


class RequestHandler(Protocol):
    """Handles the requests of connections."""

    def dispatch(self, connection: ClientConnection, frame: memoryview) -> Parts | Promise[Parts | None] | None:
        """Return the response's parts, a promise of them, or None without a response."""
        ...

    def refuse(self, frame: memoryview, error: BrokerError) -> Parts | None:
        """Return the error response to a request without a handler; None without one."""
        ...


class Host(Protocol):
    """The server of a connection, with the state that its connections share."""

    loop: asyncio.AbstractEventLoop
    receive_view: memoryview
    max_frame_bytes: int
    is_for_peers: bool
    failed_authentication_delay_ms: int
    now_ms: Callable[[], int]
    call_later_for_client: Callable[..., asyncio.TimerHandle]

    @property
    def dispatcher(self) -> RequestHandler: ...

    @property
    def log_limited(self) -> RateLimitedLog: ...

    def connection_opened(self, connection: ClientConnection) -> None: ...

    def connection_closed(self, connection: ClientConnection) -> None: ...

    def take_buffer(self, size: int) -> bytearray | None: ...

    def give_back_buffer(self, buffer: bytearray) -> None: ...


class ClientConnection(asyncio.BufferedProtocol):
    """The protocol object of one accepted connection."""

    __slots__ = (
        "_corked",
        "_frame",
        "_frame_filled",
        "_frame_size",
        "_head",
        "_is_closed",
        "_muted",
        "_outbox",
        "_outbox_bytes",
        "_pending",
        "_reading_paused",
        "_server",
        "_transport",
        "_waiting_for",
        "_writer",
        "client_host",
        "file_descriptor",
        "last_active_ms",
    )

    def __init__(self, server: Host) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._frame: bytearray | None = None
        self._frame_filled = 0
        self._frame_size = 0
        self._head = b""
        self._pending = bytearray()
        self._waiting_for: Promise[Parts | None] | None = None
        self._muted: asyncio.TimerHandle | None = None
        self._writer: ResponseWriter | None = None
        self._reading_paused = False
        self._is_closed = False
        self._corked = False
        self._outbox: Parts = []
        self._outbox_bytes = 0
        self.client_host = ""
        self.last_active_ms = 0
        self.file_descriptor = -1

    # --- life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None:  # there is none in a simulation
            # asyncio sets it only if the socket's protocol number is known; without it pipelined requests stall for
            # 44 ms.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.file_descriptor = self._direct_descriptor(sock)
        peer = transport.get_extra_info("peername")
        self.client_host = str(peer[0]) if peer else ""
        self._writer = ResponseWriter(transport, self.file_descriptor)
        self._server.connection_opened(self)

    def _direct_descriptor(self, sock: socket.socket) -> int:
        """Return the descriptor for direct writes past the transport; -1 if they are not allowed."""
        return sock.fileno()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._release_frame()
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
        if self._waiting_for is not None:
            self._waiting_for.cancel()
            self._waiting_for = None
        self._server.connection_closed(self)

    def close(self) -> None:
        """Send the queued data, then close. Called once: an encrypted transport raises if it is closed a second time
        while it waits for the client's close_notify."""
        if self._transport is not None and not self._is_closed:
            self._flush()
            self._is_closed = True
            if self._writer is not None:
                try:
                    self._writer.hand_over()
                except OSError as error:
                    self._failed(error)
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._is_closed = True
            self._transport.abort()

    def pause(self) -> None:
        """Read nothing until `unpause`: the node is paused."""
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def unpause(self) -> None:
        """Read on, unless something else keeps it from that."""
        transport = self._transport
        if transport is not None and not self._reading_paused and not self._is_closed and not transport.is_reading():
            transport.resume_reading()

    @property
    def authenticator(self) -> SaslAuthenticator | None:
        """Return the authenticator; None without authentication."""
        return None

    @property
    def principal(self) -> str:
        """Return the client's principal: anonymous on this connection."""
        return _ANONYMOUS

    @property
    def log_limited(self) -> RateLimitedLog:
        """Return the log for errors of clients."""
        return self._server.log_limited

    @property
    def is_of_peer(self) -> bool:
        """Return whether the client is a node of the cluster, on the internal listener."""
        return self._server.is_for_peers

    @property
    def is_parked(self) -> bool:
        """Return whether reading is paused: a response is pending, the client does not read, or it is throttled."""
        return (
            self._waiting_for is not None
            or self._muted is not None
            or (self._writer is not None and self._writer.is_paused)
        )

    # --- receiving

    def get_buffer(self, sizehint: int) -> memoryview:
        frame = self._frame
        if frame is not None:
            if self._frame_filled == len(frame):
                frame = self._grow_frame(frame)
            return memoryview(frame)[self._frame_filled : self._frame_size]  # never into the next frame
        shared = self._server.receive_view
        head = self._head
        if head:  # one to three bytes of a size field
            shared[: len(head)] = head
            return shared[len(head) :]
        return shared

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active_ms = self._server.now_ms()
        frame = self._frame
        if frame is None:
            size = nbytes + len(self._head)
            self._head = b""
            self._process(self._server.receive_view, size)
            return
        self._frame_filled += nbytes
        if self._frame_filled == self._frame_size:
            size = self._frame_size
            self._frame = None
            self._handle(memoryview(frame)[4:size])
            self._server.give_back_buffer(frame)

    def eof_received(self) -> bool:
        return False

    def _process(self, buffer: memoryview, size: int) -> None:
        """Handle the whole frames in `buffer[:size]` and keep what is left over. Their responses leave together."""
        self._corked = True
        try:
            self._process_frames(buffer, size)
        finally:
            self._corked = False
            self._flush()

    def _process_frames(self, buffer: memoryview, size: int) -> None:
        position = 0
        while size - position >= 4:
            if self._is_closed:
                return
            if self.is_parked:
                self._park(buffer[position:size])
                return
            length = int.from_bytes(buffer[position : position + 4], "big", signed=True)
            if (length < 8 or length > self._server.max_frame_bytes) and self._refuses_frame(length):
                return
            end = position + 4 + length
            if end > size:
                self._start_frame(buffer[position:size], 4 + length)
                return
            self._handle(buffer[position + 4 : end])
            position = end
        if position < size and not self._is_closed:
            if self.is_parked:
                self._park(buffer[position:size])
            else:
                self._head = bytes(buffer[position:size])

    def _start_frame(self, received: memoryview, total: int) -> None:
        filled = len(received)
        frame = self._server.take_buffer(total) or bytearray(max(filled, min(total, FIRST_FRAME_BUFFER)))
        frame[:filled] = received
        self._frame, self._frame_filled, self._frame_size = frame, filled, total

    def _grow_frame(self, frame: bytearray) -> bytearray:
        larger = bytearray(2 * len(frame))
        larger[: len(frame)] = frame
        self._frame = larger
        return larger

    def _release_frame(self) -> None:
        self._frame = None
        self._pending = bytearray()

    def _refuses_frame(self, length: int) -> bool:
        """Close the connection, as this is no frame of a request."""
        self.log_limited(
            logging.WARNING,
            "closed the connection from %s: a frame announces %d bytes, wanted 8 to %d (socket.request.max.bytes)",
            self.client_host,
            length,
            self._server.max_frame_bytes,
        )
        self.abort()
        return True

    # --- one request at a time

    def _handle(self, frame: memoryview) -> None:
        answer = self._server.dispatcher.dispatch(self, frame)
        if answer is None:
            return
        if isinstance(answer, list):
            self.send(answer)
            return
        if answer.done():  # kept while the handler was still running
            self._answered(answer)
            return
        self._waiting_for = answer
        answer.add_done_callback(self._answered)

    def _answered(self, answer: Promise[Parts | None]) -> None:
        self._waiting_for = None
        if self._is_closed or answer.cancelled():
            return
        parts = answer.result()
        if parts:
            self.send(parts)
        self._resume()

    def mute(self, ms: int) -> None:
        """Take no further request for so long; the response to this one leaves at once (KIP-219)."""
        if self._is_closed:
            return
        if self._muted is not None:
            self._muted.cancel()
        self._muted = self._server.loop.call_later(ms / 1000, self._unmute)

    def turn_away(self, ms: int) -> None:
        """Answer nothing, and close after that time: a client that is refused at once would try again at once."""
        self._muted = self._server.loop.call_later(ms / 1000, self.close)

    def _unmute(self) -> None:
        self._muted = None
        self._resume()

    def _park(self, rest: memoryview) -> None:
        self._pending += rest
        if len(self._pending) > PARKED_BYTES and not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self.is_parked or self._is_closed:
            return
        if self._pending:
            pending, self._pending = self._pending, bytearray()
            self._process(memoryview(pending), len(pending))
        if self._reading_paused and not self.is_parked and not self._is_closed and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()

    # --- sending

    def send(self, parts: Parts) -> None:
        """Send one response, or keep it until the requests that came with its own are answered too."""
        if not self._corked:
            self._write(parts)
            return
        self._outbox += parts
        self._outbox_bytes += sum(map(len, parts))
        if self._outbox_bytes > JOIN_LIMIT:
            self._flush()

    def _flush(self) -> None:
        if self._outbox:
            parts, self._outbox, self._outbox_bytes = self._outbox, [], 0
            self._write(parts)

    def _write(self, parts: Parts) -> None:
        writer = self._writer
        if writer is None or self._is_closed:
            return
        try:
            writer.write(parts)
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        """End the connection, as its client or a file failed: half a response cannot be mended."""
        log.debug("connection from %s: %s", self.client_host, error)
        self.abort()

    def pause_writing(self) -> None:
        if self._writer is not None:
            self._writer.is_paused = True

    def resume_writing(self) -> None:
        if self._writer is not None:
            try:
                self._writer.resume()
            except OSError as error:
                self._failed(error)
        self._resume()
