"""One end of a simulated connection: an asyncio transport over the simulated network.

Written bytes travel in pieces, each with its own delay but never past the one before it. What the receiver does not
read waits with the sender, so that a slow reader pushes back as over TCP.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from broker_embedded.cluster.simulation.process import Process

if TYPE_CHECKING:
    from broker_embedded.cluster.simulation.network import SimulatedNetwork

_KERNEL = Context()
"""What is under way belongs to no process: it arrives also when the sender has died or sleeps."""

WINDOW_BYTES = 256 * 1024
"""Capacity of the kernels' buffers of both ends. Beyond it the transport's buffer grows."""


class SimulatedTransport(asyncio.Transport):
    """Belongs to the process that connected or accepted."""

    peer: SimulatedTransport

    def __init__(self, network: SimulatedNetwork, source: str, target: str, *, process: Process | None) -> None:
        super().__init__({"peername": (target, 0), "sockname": (source, 0)})
        self.source = source
        self.target = target
        self.is_dead = False
        """The process is gone: this end sends and receives nothing."""
        self._network = network
        self._loop = network.loop
        self._context = _KERNEL if process is None else process.context()
        self._protocol: asyncio.BaseProtocol | None = None
        self._outgoing: deque[bytes] = deque()
        """Sent and not yet arrived, in order; an empty piece is the end of the stream."""
        self._outgoing_bytes = 0
        self._due_s: deque[float] = deque()
        self._incoming: deque[bytes] = deque()
        self._incoming_bytes = 0
        self._is_reading = True
        self._is_closing = False
        self._is_lost = False
        self._is_protocol_paused = False
        self._high, self._low = 64 * 1024, 16 * 1024

    def run(self, callback: Callable[..., Any], *args: Any) -> None:
        """Run as part of the process that owns this end."""
        self._loop.call_soon(callback, *args, context=self._context)

    def open(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self._protocol = factory()
        self._protocol.connection_made(self)
        self._feed()

    # --- asyncio.Transport

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self.run(self._feed)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return max(0, self._outgoing_bytes + self.peer._incoming_bytes - WINDOW_BYTES)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._is_closing or not data:
            return
        rest = bytes(data)
        while rest:
            size = self._network.piece_of(len(rest))
            self._send(rest[:size])
            rest = rest[size:]
        if self.get_write_buffer_size() > self._high and not self._is_protocol_paused:
            self._is_protocol_paused = True
            assert isinstance(self._protocol, asyncio.BaseProtocol)
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        raise NotImplementedError

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._send(b"")
            self.run(self._lose, None)

    def abort(self) -> None:
        if not self._is_lost:
            self._is_closing = True
            self._drop_outgoing()
            self.peer.reset_by_peer()
            self.run(self._lose, None)

    # --- what the network does to it

    def reset(self) -> None:
        """Break the connection: this end notices now, the other one at its next call."""
        self._drop_outgoing()
        self.run(self._lose, _reset())

    def reset_by_peer(self) -> None:
        """Handle a reset by the other end, when the message arrives."""
        if self._is_lost or self.is_dead:
            return
        if self._network.is_cut(self.target, self.source):
            self.peer._outgoing.append(_RESET)
            self.peer._due_s.append(0.0)
        else:
            delay = self._network.delay_s(self.target, self.source)
            self._loop.call_later(delay, self._lose, _reset(), context=self._context)

    def die(self) -> None:
        self.is_dead = True
        self._is_closing = True
        self._drop_outgoing()
        self._network.forget(self)

    def deliver_held(self) -> None:
        """Deliver what was held: the link works again."""
        pieces = len(self._outgoing)
        self._due_s.clear()
        for _ in range(pieces):
            self._schedule()

    # --- bytes on their way

    def _send(self, piece: bytes) -> None:
        self._outgoing.append(piece)
        self._outgoing_bytes += len(piece)
        self._schedule()

    def _schedule(self) -> None:
        due_s = self._loop.time() + self._network.delay_s(self.source, self.target)
        if self._due_s and self._due_s[-1] > due_s:
            due_s = self._due_s[-1]
        self._due_s.append(due_s)
        self._loop.call_at(due_s, self._arrive, context=_KERNEL)

    def _arrive(self) -> None:
        """Deliver the oldest piece to the other host, whether its process runs or not."""
        if not self._outgoing or not self._due_s or self._network.is_cut(self.source, self.target):
            return
        if self._due_s[0] > self._loop.time() + 1e-6:  # of an earlier time, before the link was cut and mended
            return
        self._due_s.popleft()
        piece = self._outgoing.popleft()
        self._outgoing_bytes -= len(piece)
        peer = self.peer
        if piece is _RESET:
            peer.run(peer._lose, _reset())
            return
        self._network.delivered(self.source, self.target, piece)
        if self._is_lost and not self._outgoing:
            self._network.forget(self)
        if peer.is_dead or peer._is_lost:
            if not self._network.is_cut(self.target, self.source):
                self.reset_by_peer()
            return
        peer._incoming.append(piece)
        peer._incoming_bytes += len(piece)
        peer.run(peer._feed)

    def _feed(self) -> None:
        """Give the protocol what has arrived, as far as it reads."""
        while self._incoming and self._is_reading and not self._is_lost and self._protocol is not None:
            if self._is_closing:
                self._incoming.clear()
                self._incoming_bytes = 0
                return
            piece = self._incoming.popleft()
            self._incoming_bytes -= len(piece)
            try:
                self._hand_over(piece)
            except Exception as error:
                self._loop.call_exception_handler({"message": "a protocol failed", "exception": error})
                self.abort()
                return
        if not self.peer.is_dead:
            self.peer.run(self.peer._has_room)

    def _hand_over(self, piece: bytes) -> None:
        protocol = self._protocol
        if not piece:
            assert isinstance(protocol, asyncio.BufferedProtocol | asyncio.Protocol)
            protocol.eof_received()
            self.close()
        elif isinstance(protocol, asyncio.BufferedProtocol):
            rest = memoryview(piece)
            while rest and not self._is_closing:
                buffer = memoryview(protocol.get_buffer(len(rest)))
                size = min(len(buffer), len(rest))
                buffer[:size] = rest[:size]
                protocol.buffer_updated(size)
                rest = rest[size:]
        else:
            assert isinstance(protocol, asyncio.Protocol)
            protocol.data_received(piece)

    def _has_room(self) -> None:
        if self._is_protocol_paused and not self._is_closing and self.get_write_buffer_size() <= self._low:
            self._is_protocol_paused = False
            assert self._protocol is not None
            self._protocol.resume_writing()

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost or self.is_dead:
            return
        self._is_lost = self._is_closing = True
        if error is not None:
            self._drop_outgoing()
        self._incoming.clear()
        self._incoming_bytes = 0
        if not self._outgoing:
            self._network.forget(self)
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def _drop_outgoing(self) -> None:
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self._due_s.clear()


_RESET = bytes(b"\0" * 3)[1:]
"""Told from data by identity: the message that the other end is gone, held by a cut link."""


def _reset() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
