"""The nodes of a simulated cluster: each in a process, on a host and with a disk of its own."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from broker_embedded.cluster.cluster import SEVERAL_NODES, VOTERS
from broker_embedded.cluster.node import Node, NodeSettings, Surroundings
from broker_embedded.cluster.simulation.loop import SimulatedClock, SimulatedLoop
from broker_embedded.cluster.simulation.network import SimulatedNetwork
from broker_embedded.cluster.simulation.process import Process
from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.memory_filesystem import MemoryFileSystem
from broker_embedded.server.broker import Broker
from broker_embedded.server.peers.peer_connections import NoFaults
from broker_embedded.storage.file_pool import OpenFiles
from ottla_wire.protocol.primitives import random_uuid, uuid_text

PORT = 9092
INTERNAL_PORT = 9093
CLUSTER_ID = "simulated-cluster-00000"
MAX_OPEN_FILES = 800
"""The same on every machine, whatever its limits: a seed replays exactly."""


def bootstrap_of(brokers: int) -> list[tuple[str, int]]:
    """Return where the nodes of a cluster listen."""
    return [(f"node-{node_id}", PORT) for node_id in range(1, brokers + 1)]


class SimulatedNode:
    """One node through all its incarnations. Its disk outlives them."""

    def __init__(
        self,
        node_id: int,
        *,
        brokers: int,
        loop: SimulatedLoop,
        network: SimulatedNetwork,
        settings: Mapping[str, object],
        random: Random,
    ) -> None:
        self.node_id = node_id
        self.name = f"node-{node_id}"
        self.clock = SimulatedClock(loop)
        self.disk = MemoryFileSystem(clock=self.clock)
        self.process: Process | None = None
        self.node: Node | None = None
        self._brokers = brokers
        self._loop = loop
        self._network = network
        self._settings = dict(settings)
        self._random = random

    @property
    def broker(self) -> Broker | None:
        """The broker of the process that runs now."""
        return None if self.node is None else self.node.broker

    @property
    def is_running(self) -> bool:
        return self.process is not None and not self.process.is_dead and not self.process.is_paused

    @property
    def is_alive(self) -> bool:
        return self.process is not None and not self.process.is_dead

    def controller_epoch(self) -> int | None:
        """Return the epoch in which this node is the active controller; None if it is not."""
        if self.node is None or not self.node.quorum.is_leader:
            return None
        return self.node.quorum.epoch

    # --- life

    async def start(self) -> None:
        """Start in a new process; returns when it serves."""
        self.process = Process(self.name)
        self._network.host_is_up(self.name)
        await self.process.spawn(self._loop, self._start(), name="start")

    async def stop(self) -> None:
        """Shut down cleanly."""
        assert self.process is not None
        await self.process.spawn(self._loop, self._stop(), name="stop")
        self._end(is_silent=False)

    def kill(self) -> None:
        """Kill the process; what was written stays on the disk."""
        self.disk.kill()
        self._end(is_silent=False)

    def lose_power(self, random: Random) -> None:
        """Cut the power of the machine: unflushed data is lost in whole or in part, and peers get no notification."""
        self.disk.crash(random)
        self._end(is_silent=True)

    def _end(self, *, is_silent: bool) -> None:
        assert self.process is not None
        self.process.kill()
        self.process = None
        self.node = None
        self._network.host_died(self.name, is_silent=is_silent)

    async def _start(self) -> None:
        config = BrokerConfig.from_settings({**(SEVERAL_NODES if self._brokers > 1 else {}), **self._settings})
        around = Surroundings(
            cluster_id=CLUSTER_ID,
            voters=tuple(range(1, VOTERS + 1)) if self._brokers >= VOTERS else (1,),
            data_dir="",
            network=self._network.host(self.name),
            links=NoFaults(),
            addresses={each: (f"node-{each}", INTERNAL_PORT) for each in range(1, self._brokers + 1)},
            clock=self.clock,
            random=self._random,
            loop=self._loop,
            new_uuid_text=self._new_uuid_text,
            open_files=OpenFiles(max_open=MAX_OPEN_FILES),
        )
        settings = NodeSettings(
            config=config,
            static_settings=self._settings,
            port=PORT,
            internal_port=INTERNAL_PORT if self._brokers > 1 else None,
        )
        self.node = Node(self.node_id, around=around, fs=self.disk, settings=settings)
        await self.node.start_quorum()
        await self.node.join()

    async def _stop(self) -> None:
        assert self.node is not None
        await self.node.hand_over()
        await self.node.stop()

    def _new_uuid_text(self) -> str:
        return uuid_text(random_uuid(self._random))
