"""The nodes of a simulated cluster: each in a process, on a host and with a disk of its own."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from broker_embedded.cluster.simulation.loop import SimulatedClock, SimulatedLoop
from broker_embedded.cluster.simulation.network import SimulatedNetwork
from broker_embedded.cluster.simulation.process import Process
from broker_embedded.common.config import BrokerConfig
from broker_embedded.common.memory_filesystem import MemoryFileSystem
from broker_embedded.common.types import CLUSTER_METADATA_TOPIC
from broker_embedded.controller.controller import Controller
from broker_embedded.controller.quorum import SingleVoterQuorum
from broker_embedded.metadata.records import ResourceType
from broker_embedded.replication.log_settings import log_config
from broker_embedded.server.broker import Broker
from broker_embedded.server.peer_connections import PeerConnections
from broker_embedded.storage.log_manager import LogManager

PORT = 9092
CLUSTER_ID = "simulated-cluster-00000"


def bootstrap_of(brokers: int) -> list[tuple[str, int]]:
    """Where the nodes of a cluster listen."""
    return [(f"node-{node_id}", PORT) for node_id in range(1, brokers + 1)]


class SimulatedNode:
    """One node through all its incarnations. Its disk outlives them."""

    def __init__(
        self,
        node_id: int,
        *,
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
        self.broker: Broker | None = None
        self._loop = loop
        self._network = network
        self._settings = dict(settings)
        self._random = random
        self._closing: list[LogManager] = []

    @property
    def is_running(self) -> bool:
        return self.process is not None and not self.process.is_dead and not self.process.is_paused

    @property
    def is_alive(self) -> bool:
        return self.process is not None and not self.process.is_dead

    def controller_epoch(self) -> int | None:
        """The epoch in which this node is the active controller; None if it is not."""
        return 1 if self.broker is not None else None

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
        """The process dies, the machine lives: what was written is on the disk."""
        self.disk.kill()
        self._end(is_silent=False)

    def lose_power(self, random: Random) -> None:
        """The machine dies: what was not flushed is lost, or a part of it; nobody is told."""
        self.disk.crash(random)
        self._end(is_silent=True)

    def _end(self, *, is_silent: bool) -> None:
        assert self.process is not None
        self.process.kill()
        self.process = None
        self.broker = None
        self._network.host_died(self.name, is_silent=is_silent)

    async def _start(self) -> None:
        config = BrokerConfig.from_settings(self._settings)
        metadata_logs = LogManager(["/controller"], fs=self.disk, clock=self.clock, cleaner_enabled=False)
        metadata_logs.load_all()
        quorum = SingleVoterQuorum(
            voter_id=self.node_id,
            metadata_log=metadata_logs.get_or_create(CLUSTER_METADATA_TOPIC, 0),
            clock=self.clock,
        )
        controller = Controller(
            cluster_id=CLUSTER_ID, quorum=quorum, config=config, random=self._random, loop=self._loop, clock=self.clock
        )
        logs = LogManager(
            ["/data"],
            fs=self.disk,
            clock=self.clock,
            config_for=lambda topic: log_config(config, controller.image.config_overrides(ResourceType.TOPIC, topic)),
            cleaner_enabled=False,
        )
        logs.load_all()
        self._closing = [metadata_logs, logs]
        listener = self._network.host(self.name).listen("", PORT)
        self.broker = Broker(
            node_id=self.node_id,
            listener=listener,
            loop=self._loop,
            clock=self.clock,
            random=self._random,
            cluster_id=CLUSTER_ID,
            config=config,
            static_settings=self._settings,
            controller=controller,
            quorum=quorum,
            peers=PeerConnections(
                node_id=self.node_id, network=self._network.host(self.name), addresses={}, loop=self._loop
            ),
            logs=logs,
        )
        await self.broker.start()

    async def _stop(self) -> None:
        assert self.broker is not None
        await self.broker.stop()
        for logs in self._closing:
            logs.close()
