"""The network as nodes see it: listening, being connected to, connecting. Real sockets, or a simulation in their place.

A node is given a `Network` and never makes a socket itself. What two nodes say to each other goes through `connect`,
which knows who asks whom: the place where a link between them can be cut.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from broker_embedded.common.descriptors import OUT_OF_DESCRIPTORS, SPARE, MakeRoom, no_room, soft_limit, with_room
from broker_embedded.common.errors import StartupError

if TYPE_CHECKING:
    from ssl import SSLContext

log = logging.getLogger(__name__)

ACCEPTED_AT_ONCE = 128
"""Connections accepted per turn of the loop: requests of others are answered in between."""

TLS_SHUTDOWN_S = 2
"""How long a closed connection waits for the client to say goodbye too, so that what was sent last arrives."""

OUT_OF_RESOURCES = (*OUT_OF_DESCRIPTORS, errno.ENOBUFS, errno.ENOMEM)
PAUSE_S = 1

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class Listener(Protocol):
    """A bound address. Keeps its port also while no server accepts."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    async def serve(self, factory: ProtocolFactory, *, tls: SSLContext | None = None) -> None:
        """Accept connections, with a protocol of `factory` for each: once it is encrypted, if `tls` is given."""
        ...

    def close(self) -> None:
        """Stop accepting and free the port. Accepted connections stay open."""
        ...


class Reservation(Protocol):
    """An address reserved for a node that does not listen now."""

    def release(self) -> None: ...


class Network(Protocol):
    """Addresses at which nodes listen and reach each other."""

    def listen(self, host: str, port: int) -> Listener:
        """Bind; port 0 takes a free one. StartupError says why it cannot be."""
        ...

    def reserve(self, host: str, port: int) -> Reservation:
        """Keep a port from others while its owner is down: connecting to it is refused."""
        ...

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> None:
        """Connect a protocol of `factory` to an address. Raises OSError if no server listens."""
        ...


class TcpListener:
    """A listening socket.

    It accepts by itself: asyncio's own server loses a connection, unclosed, that it accepted in the turn of the loop in
    which it was closed.
    """

    def __init__(self, sock: socket.socket, *, make_room: MakeRoom = no_room) -> None:
        self.host, self.port = sock.getsockname()[:2]
        self._sock = sock
        self._make_room = make_room
        self._factory: ProtocolFactory | None = None
        self._tls: dict[str, Any] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._beginning: set[asyncio.Task[object]] = set()

    async def serve(self, factory: ProtocolFactory, *, tls: SSLContext | None = None) -> None:
        self._factory = factory
        if tls is not None:
            self._tls = {"ssl": tls, "ssl_shutdown_timeout": TLS_SHUTDOWN_S}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._sock.fileno(), self._accept)

    def close(self) -> None:
        if self._loop is not None and self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
        if self._tls:  # who has not finished the handshake may never do
            for task in self._beginning:
                task.cancel()

    def _accept(self) -> None:
        assert self._loop is not None
        assert self._factory is not None
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, _ = with_room(self._sock.accept, self._make_room)
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in OUT_OF_RESOURCES:
                    raise
                self._rest(error.strerror or str(error))
                return
            # The system gives the lowest descriptor that is free: a high one says that few are left.
            if accepted.fileno() >= soft_limit() - SPARE and not self._make_room():
                accepted.close()
                self._rest(f"{soft_limit()} descriptors are in use (ulimit -n)")
                return
            accepted.setblocking(False)
            task = self._loop.create_task(self._loop.connect_accepted_socket(self._factory, accepted, **self._tls))
            self._beginning.add(task)
            task.add_done_callback(self._has_begun)

    def _rest(self, reason: str) -> None:
        """Pause accepting connections."""
        assert self._loop is not None
        log.error("port %d accepts nothing for %d s: %s", self.port, PAUSE_S, reason)
        self._loop.remove_reader(self._sock.fileno())
        self._loop.call_later(PAUSE_S, self._accept_again)

    def _accept_again(self) -> None:
        if self._loop is not None and self._sock.fileno() >= 0:
            self._loop.add_reader(self._sock.fileno(), self._accept)

    def _has_begun(self, task: asyncio.Task[object]) -> None:
        self._beginning.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.info("a connection to port %d ended as it began: %s", self.port, task.exception())


class _BoundSocket:
    """Reserves the port; connections are refused."""

    def __init__(self, host: str, port: int) -> None:
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._sock.bind((host, port))
        except OSError:  # somebody was faster; the restart will say so
            self._sock.close()

    def release(self) -> None:
        self._sock.close()


class TcpNetwork:
    """Loopback sockets of this machine. `make_room` closes files when the process may open no more."""

    def __init__(self, *, make_room: MakeRoom = no_room) -> None:
        self._make_room = make_room

    def listen(self, host: str, port: int) -> TcpListener:
        try:
            sock = with_room(lambda: listen(host, port), self._make_room)
        except OSError as error:
            raise StartupError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
        return TcpListener(sock, make_room=self._make_room)

    def reserve(self, host: str, port: int) -> Reservation:
        return _BoundSocket(host, port)

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> None:
        while True:
            try:
                await asyncio.get_running_loop().create_connection(factory, host, port)
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS or not self._make_room():
                    raise
            else:
                return


def listen(host: str, port: int) -> socket.socket:
    """Return a bound socket, or StartupError. The protocol number is given so that accepted sockets know they are
    TCP."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(1024)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise StartupError(f"port {port} on {host} is in use: stop what listens there or choose another") from None
        raise StartupError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    except OverflowError:
        sock.close()
        raise StartupError(f"port {port}: wanted a number from 0 to 65535") from None
    return sock
