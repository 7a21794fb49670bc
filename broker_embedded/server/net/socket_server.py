"""The listening socket of one broker, its connections, and the buffers they share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.clock import Clock, client_monotonic_ms, client_timer
from broker_embedded.server.net.connection import ClientConnection, RequestHandler
from broker_embedded.server.net.network import Listener
from broker_embedded.server.net.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from broker_embedded.security.listener import ListenerSecurity

log = logging.getLogger(__name__)

RECEIVE_BUFFER = 128 * 1024
SPARE_BUFFERS = 8
SPARE_BUFFER_LIMIT = 4 * 1024 * 1024
"""Frame buffers up to this size are kept for the next large frame: touching fresh pages costs more than reading the
socket.
"""

TURNS_TO_END = 4
"""connection_lost of an aborted transport runs in the loop's next turn, of an encrypted one some turns later."""


class SocketServer:
    """Accepts connections for one broker."""

    def __init__(
        self,
        *,
        listener: Listener,
        config: BrokerConfig,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        dispatcher: RequestHandler,
        on_connect: Callable[[ClientConnection], None] | None = None,
        on_disconnect: Callable[[ClientConnection], None] | None = None,
        security: ListenerSecurity | None = None,
        is_for_peers: bool = False,
    ) -> None:
        """`security`: the authentication that clients must pass; None: plain text without authentication.
        `is_for_peers`: the clients are the other nodes."""
        self.host, self.port = listener.host, listener.port
        self.max_frame_bytes = config.socket_request_max_bytes
        self.dispatcher = dispatcher
        self.loop = loop
        self.receive_view = memoryview(bytearray(RECEIVE_BUFFER))
        self.now_ms = client_monotonic_ms(clock)  # a client that is not idle in its own time is not cut off
        self.log_limited = RateLimitedLog(log, now_ms=self.now_ms)
        """For what clients do wrong."""
        self.is_for_peers = is_for_peers
        self.is_paused = False
        self._listener = listener
        self._on_connect = on_connect
        self._on_disconnect = on_disconnect
        self._security = security
        self._max_idle_ms = config.connections_max_idle_ms
        self.failed_authentication_delay_ms = config.connection_failed_authentication_delay_ms
        self.call_later_for_client = client_timer(loop)
        self._connections: dict[ClientConnection, None] = {}  # in the order of their coming
        self._is_stopped = False
        self._spare_buffers: list[bytearray] = []

    async def start(self) -> None:
        """Begin to accept."""
        security = self._security
        if security is None:
            await self._listener.serve(lambda: ClientConnection(self))
            return
        # Loaded only here: a broker without it shall start quickly.
        from broker_embedded.server.net.secure_connection import SecureConnection
        from broker_embedded.server.net.tls import server_context

        tls = server_context(security.settings) if security.settings.uses_tls else None
        await self._listener.serve(lambda: SecureConnection(self, security.new_authenticator()), tls=tls)

    def pause(self) -> None:
        """Read no request until `resume`. Connections stay open, and new ones are accepted as the kernel does."""
        self.is_paused = True
        for connection in self._connections:
            connection.pause()

    def resume(self) -> None:
        """Read on."""
        self.is_paused = False
        for connection in list(self._connections):
            connection.unpause()

    def abort(self) -> None:
        """Stop accepting and cut every connection, at once."""
        self._is_stopped = True
        self._listener.close()
        for connection in list(self._connections):
            connection.abort()

    async def stop(self) -> None:
        """Abort, and return when the connections are gone."""
        self.abort()
        for _ in range(TURNS_TO_END):
            if not self._connections:
                break
            await asyncio.sleep(0)

    @property
    def connections(self) -> Collection[ClientConnection]:
        return self._connections.keys()

    def close_idle(self) -> None:
        """Close connections idle for connections.max.idle.ms with no response pending."""
        self.log_limited.close_interval()
        if self._max_idle_ms <= 0:
            return
        oldest_allowed = self.now_ms() - self._max_idle_ms
        for connection in list(self._connections):
            if connection.last_active_ms < oldest_allowed and not connection.is_parked:
                self.log_limited(
                    logging.INFO,
                    "closed the connection from %s: idle for %d ms",
                    connection.client_host,
                    self._max_idle_ms,
                )
                connection.close()

    # --- called by connections

    def connection_opened(self, connection: ClientConnection) -> None:
        connection.last_active_ms = self.now_ms()
        if self.is_paused:
            connection.pause()
        self._connections[connection] = None
        if self._is_stopped:  # it was being accepted while the server stopped
            connection.abort()
        elif self._on_connect is not None:
            self._on_connect(connection)

    def connection_closed(self, connection: ClientConnection) -> None:
        self._connections.pop(connection, None)
        if self._on_disconnect is not None:
            self._on_disconnect(connection)

    def take_buffer(self, size: int) -> bytearray | None:
        """Return a used buffer of at least `size` bytes, or None."""
        for index, buffer in enumerate(self._spare_buffers):
            if len(buffer) >= size:
                return self._spare_buffers.pop(index)
        return None

    def give_back_buffer(self, buffer: bytearray) -> None:
        if len(buffer) > SPARE_BUFFER_LIMIT:
            return
        if len(self._spare_buffers) >= SPARE_BUFFERS:
            self._spare_buffers.pop(0)
        self._spare_buffers.append(buffer)
