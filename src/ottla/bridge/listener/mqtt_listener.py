"""The listener: publishers connect to it with MQTT, over TCP, TLS or WebSocket.

While Kafka is away, the sink is full: messages wait in their connections' inboxes, up to a bound, then their sockets
are not read. PINGREQs are answered until then, and a client whose socket is not read is not disconnected for its
silence.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Coroutine
from typing import Any, Final

from ottla.bridge.forwarding.counts import BridgeCounts
from ottla.bridge.forwarding.forwarder import Forwarder
from ottla.bridge.forwarding.sink import Sink
from ottla.bridge.listener.connection import PublisherConnection
from ottla.bridge.listener.listen_address import ListenAddress
from ottla.bridge.listener.logins import Logins
from ottla.bridge.mqtt.codes import Reason
from ottla.bridge.mqtt.listener_limits import ListenerLimits
from ottla.bridge.mqtt.session_state import SessionStates
from ottla.clock import Clock, SystemClock
from ottla.errors import ConfigError
from ottla.telemetry import log_event

_READ_BYTES: Final = 65_536
_SWEEP_S: Final = 1.0
_MOST_RECEIPTS: Final = 1_000_000
"""Of clients that are away: 220 bytes each."""
_BACKLOG: Final = 1_024
_SETTLED_S: Final = 0.02


class MqttListener:
    """All connections of one process. Belongs to one event loop."""

    def __init__(
        self,
        addresses: list[ListenAddress],
        *,
        sink: Sink,
        forwarder: Forwarder,
        counts: BridgeCounts,
        logins: Logins,
        limits: ListenerLimits,
        max_connections: int,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._addresses = addresses
        self._tls = tls
        self._max_connections = max_connections
        self._connections: dict[PublisherConnection, None] = {}
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.now_ms = (clock or SystemClock()).monotonic_ms
        self.sink = sink
        self.forwarder = forwarder
        self.counts = counts
        self.logins = logins
        self.limits = limits
        self.states = SessionStates(most_idle=10 * max_connections, most_receipts=_MOST_RECEIPTS)
        self.buffer = memoryview(bytearray(_READ_BYTES))
        self.waiting: dict[PublisherConnection, None] = {}
        """Connections with messages that wait for room in the sink."""
        self.dirty: dict[PublisherConnection, None] = {}
        """Connections with acknowledgements to write."""
        self.is_stopping = False
        self._is_settled: asyncio.Event | None = None
        sink.after_drain = self._after_drain

    @property
    def connections(self) -> int:
        """Return the number of open connections."""
        return len(self._connections)

    @property
    def ports(self) -> list[int]:
        """Return the port of each address, in the order in which they were given."""
        return [server.sockets[0].getsockname()[1] for server in self._servers]

    async def start_listening(self) -> None:
        """Listen. Raises `ConfigError` where that is not possible."""
        loop = asyncio.get_running_loop()
        for address in self._addresses:
            if address.is_tls and self._tls is None:
                raise ConfigError(f"--listen {address}: wanted --tls-certificate and --tls-key for it")
            try:
                server = await loop.create_server(
                    lambda web=address.is_web: PublisherConnection(self, web=web),
                    address.host,
                    address.port,
                    ssl=self._tls if address.is_tls else None,
                    backlog=_BACKLOG,
                    ssl_handshake_timeout=self.limits.connect_timeout_s if address.is_tls else None,
                )
            except OSError as error:
                raise ConfigError(f"--listen {address}: cannot listen there: {error}") from error
            self._servers.append(server)
            log_event("bridge_listening", "info", {"address": address.with_port(self.ports[-1])})
        self.start(self._sweep())

    async def stop(self, drain_s: float) -> None:
        """Take no more messages, wait for those in flight, then send every client away with the reason."""
        self.is_stopping = True
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.stop_reading()
        self._is_settled = asyncio.Event()
        self._after_drain()
        try:
            await asyncio.wait_for(self._is_settled.wait(), drain_s)
        except TimeoutError:
            log_event("bridge_stopped_early", "warning", {"in_flight": self.sink.in_flight})
        for connection in list(self._connections):
            connection.close(Reason.SHUTTING_DOWN, "the bridge stops")
        await asyncio.sleep(0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for _ in range(50):
            if not self._connections:
                return
            await asyncio.sleep(_SETTLED_S)
        for connection in list(self._connections):
            connection.abort()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the connections; it is cancelled at the end."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # What connections call

    def admit(self, connection: PublisherConnection) -> bool:
        """Return whether one more connection is allowed, and count it."""
        if len(self._connections) >= self._max_connections or self.is_stopping:
            log_event("bridge_connections_full", "warning", {"limit": self._max_connections})
            return False
        self._connections[connection] = None
        return True

    def closed(self, connection: PublisherConnection) -> None:
        """Forget a connection."""
        self._connections.pop(connection, None)
        self.waiting.pop(connection, None)
        self.dirty.pop(connection, None)

    def may_send_qos0(self) -> bool:
        """Return whether there is room for a QoS 0 message."""
        return not self.sink.is_full_for_qos0

    def new_client_id(self) -> str:
        """Return a client id for a client that sent none."""
        return f"ottla-{secrets.token_hex(8)}"

    # What goes on by itself

    def _after_drain(self) -> None:
        while self.dirty:
            self.dirty.popitem()[0].pump()
        while self.waiting and not self.sink.is_full:
            connection = next(iter(self.waiting))
            del self.waiting[connection]
            connection.pump()
        if self._is_settled is not None and not self.sink.in_flight:
            self._is_settled.set()

    async def _sweep(self) -> None:
        """Disconnect clients that are silent for too long."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            now_ms = self.now_ms()
            for connection in [each for each in self._connections if each.is_overdue(now_ms)]:
                connection.close(Reason.KEEP_ALIVE_TIMEOUT, "silent for longer than 1.5 times its keep-alive")
            self.states.expire(now_ms)
