"""A network in memory: connections with delays, links that are cut, hosts that vanish.

Bytes of one connection arrive in order and whole or not at all; what different connections carry overtakes each other,
because each piece of each connection has a delay of its own, from the seed. A cut link holds what is sent over it, as
TCP does, until it is mended or somebody gives up; a reset ends connections at once.

Every host sees it as its own `Network` (`SimulatedNetwork.host`), so that it is known who connects to whom.
"""

from __future__ import annotations

import asyncio
import errno
import os
import zlib
from collections.abc import Callable
from random import Random

from broker_embedded.cluster.simulation.loop import SimulatedLoop
from broker_embedded.cluster.simulation.process import Process, current_process
from broker_embedded.cluster.simulation.transport import SimulatedTransport
from broker_embedded.common.errors import StartupError
from broker_embedded.server.net.network import ProtocolFactory

CONNECT_TIMEOUT_S = 3.0
"""How long a connection attempt into nothing takes."""

FIRST_FREE_PORT = 40_000


class SimulatedNetwork:
    """All hosts and what lies between them."""

    def __init__(self, *, loop: SimulatedLoop, random: Random) -> None:
        self.loop = loop
        self.fingerprint = 0
        """A checksum over everything delivered, with its time: two runs that agree in it were the same run."""
        self.deliveries = 0
        self._random = random
        self._listeners: dict[tuple[str, int], SimulatedListener] = {}
        self._transports: dict[SimulatedTransport, None] = {}
        self._cut: dict[tuple[str, str], None] = {}
        self._slow_ms: dict[tuple[str, str], float] = {}
        self._down: dict[str, None] = {}
        self._next_port = FIRST_FREE_PORT

    def host(self, name: str) -> HostNetwork:
        """Return the network as host `name` has it."""
        return HostNetwork(self, name)

    # --- faults

    def cut(self, source: str, target: str) -> None:
        """Cut the link from `source` to `target`. The other direction is another link."""
        self._cut[source, target] = None

    def mend(self, source: str, target: str) -> None:
        """Mend the link and deliver what was held."""
        self._cut.pop((source, target), None)
        for transport in list(self._transports):
            if transport.source == source and transport.target == target:
                transport.deliver_held()
            elif transport.source == target and transport.target == source and transport.peer.is_dead:
                transport.reset_by_peer()

    def slow(self, source: str, target: str, delay_ms: float) -> None:
        """Delay everything by that much; 0 ends it."""
        if delay_ms:
            self._slow_ms[source, target] = delay_ms
        else:
            self._slow_ms.pop((source, target), None)

    def reset_connections(self, first: str, second: str) -> int:
        """End every connection between two hosts; both sides notice. Returns how many there were."""
        found = [each for each in self._transports if {each.source, each.target} == {first, second}]
        for transport in found:
            transport.reset()
        return len(found) // 2

    def host_died(self, name: str, *, is_silent: bool) -> None:
        """Kill the processes of a host. Peers see a reset; after a power failure they see it when the host is up
        again."""
        for listener in [each for each in self._listeners.values() if each.host == name]:
            listener.close()
        for transport in list(self._transports):
            if transport.source == name:
                transport.die()
                if not is_silent:
                    transport.peer.reset_by_peer()
        if is_silent:
            self._down[name] = None

    def host_is_up(self, name: str) -> None:
        """Reset connections to a host that is up again after a silent death."""
        self._down.pop(name, None)
        for transport in list(self._transports):
            if transport.target == name and transport.peer.is_dead:
                transport.reset_by_peer()

    # --- called by transports and hosts

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cut or source in self._down or target in self._down

    def delay_s(self, source: str, target: str) -> float:
        """Return how long the next piece takes. Mostly little, sometimes ten times as long, so that order changes."""
        random = self._random
        ms = random.uniform(0.1, 0.5)
        if random.random() < 0.05:
            ms += random.uniform(1, 10)
        return (ms + self._slow_ms.get((source, target), 0)) / 1000

    def piece_of(self, size: int) -> int:
        """Return how much of `size` bytes arrives together: nearly always all."""
        if size > 1 and self._random.random() < 0.02:
            return self._random.randrange(1, size)
        return size

    def delivered(self, source: str, target: str, data: bytes) -> None:
        self.deliveries += 1
        label = f"{self.loop.now_ns} {source} {target} {len(data)}".encode()
        self.fingerprint = zlib.crc32(data, zlib.crc32(label, self.fingerprint))

    def forget(self, transport: SimulatedTransport) -> None:
        self._transports.pop(transport, None)

    def add_listener(self, listener: SimulatedListener) -> None:
        address = (listener.host, listener.port)
        if address in self._listeners:
            raise StartupError(f"port {listener.port} on {listener.host} is in use")
        self._listeners[address] = listener

    def remove_listener(self, listener: SimulatedListener) -> None:
        self._listeners.pop((listener.host, listener.port), None)

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    async def connect(self, source: str, host: str, port: int, factory: ProtocolFactory) -> None:
        there = self.delay_s(source, host)
        if self.is_cut(source, host) or self.is_cut(host, source):
            await asyncio.sleep(CONNECT_TIMEOUT_S)
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        await asyncio.sleep(there)
        listener = self._listeners.get((host, port))
        if listener is None or listener.serving is None:
            await asyncio.sleep(self.delay_s(host, source))
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        server_factory, server_process = listener.serving
        near = SimulatedTransport(self, source, host, process=current_process.get())
        far = SimulatedTransport(self, host, source, process=server_process)
        near.peer, far.peer = far, near
        self._transports[near] = self._transports[far] = None
        far.run(far.open, server_factory)
        await asyncio.sleep(self.delay_s(host, source))
        if near.is_dead or near.is_closing():
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        near.open(factory)


class HostNetwork:
    """Implements `server.net.network.Network` for one host. What it is told to listen on is a name, not an address."""

    def __init__(self, network: SimulatedNetwork, name: str) -> None:
        self.name = name
        self._network = network

    def listen(self, host: str, port: int) -> SimulatedListener:
        listener = SimulatedListener(self._network, self.name, port or self._network.free_port())
        self._network.add_listener(listener)
        return listener

    def reserve(self, host: str, port: int) -> NothingReserved:
        return NothingReserved()

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> None:
        await self._network.connect(self.name, host, port, factory)


class NothingReserved:
    """Ports of a simulated host are always free."""

    def release(self) -> None:
        pass


class SimulatedListener:
    """A bound port."""

    def __init__(self, network: SimulatedNetwork, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.serving: tuple[Callable[[], asyncio.BaseProtocol], Process | None] | None = None
        self._network = network

    async def serve(self, factory: ProtocolFactory, *, tls: object = None) -> None:
        self.serving = (factory, current_process.get())

    def close(self) -> None:
        self.serving = None
        self._network.remove_listener(self)
