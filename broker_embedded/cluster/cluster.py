"""All nodes of one cluster, on one event loop: started and stopped together, or killed and restarted one by one.

Directory layout below the data directory: `controller-N/` and `broker-N/` of node N (see `node`). Ports, identities and
data survive a restart of a node, and of the cluster if a data directory was given.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from random import Random, SystemRandom
from typing import TYPE_CHECKING

from broker_embedded.cluster import temporary
from broker_embedded.cluster.faults import Disks, Faults, FaultyFileSystem, InvalidFault, Links, OnLoop
from broker_embedded.cluster.node import HOST, Node, NodeSettings, Surroundings, log_dirs
from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.clock import Clock, SystemClock
from broker_embedded.common.config_definition import InvalidConfig
from broker_embedded.common.errors import BrokerError, StartupError
from broker_embedded.common.filesystem import FileSystem
from broker_embedded.common.os_filesystem import OsFileSystem
from broker_embedded.common.types import NO_LEADER, TopicPartition
from broker_embedded.controller.controller import Controller
from broker_embedded.metadata.image import ClusterImage, PartitionImage, newest
from broker_embedded.server.broker import Broker
from broker_embedded.server.net.network import Network, Reservation, TcpNetwork
from broker_embedded.storage.checkpoints import read_meta_properties
from broker_embedded.storage.faults import storage_error
from broker_embedded.storage.file_pool import OpenFiles
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.primitives import random_uuid, uuid_text

if TYPE_CHECKING:
    from pathlib import Path

    from broker_embedded.security.settings import Security

log = logging.getLogger(__name__)

EVERY_ADDRESS = "0.0.0.0"
"""As the address to listen on: all of this machine's."""

VOTERS = 3
"""Nodes that vote in the metadata quorum; the others observe it. A cluster of fewer than three nodes has one voter: of
two voters neither could continue alone."""

POLL_S = 0.002

CHANGE_TIMEOUT_S = 60.0
"""Timeout of a change to the cluster: as long as a broker tries to register."""

SEVERAL_NODES: Mapping[str, object] = {
    "broker.session.timeout.ms": 600,
    "broker.heartbeat.interval.ms": 100,
    "controller.quorum.fetch.timeout.ms": 400,
    "controller.quorum.election.timeout.ms": 200,
    "controller.quorum.election.backoff.max.ms": 100,
    "replica.fetch.backoff.ms": 50,
    "peer.death.detection.enable": True,
}
"""Settings that differ from Kafka's defaults in a cluster of several nodes, so that tests of failures take a second and
not ten. Each can be set to Kafka's value again."""


class Cluster:
    """A cluster that can be started and stopped, on the loop that calls it."""

    def __init__(
        self,
        *,
        brokers: int = 1,
        port: int = 0,
        data_dir: str | Path | None = None,
        config: Mapping[str, object] | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        racks: Sequence[str] | None = None,
        log_dirs: int = 1,
        log_dir_bytes: Sequence[int] | None = None,
        first_broker_id: int = 1,
        ports: Sequence[int] | None = None,
        advertised_host: str | None = None,
        listen_host: str = HOST,
        network: Network | None = None,
        filesystem: Callable[[int], FileSystem] | None = None,
        open_files: OpenFiles | None = None,
        security: Security | None = None,
    ) -> None:
        """`racks`: that of each broker in order. `filesystem(node)`: where that node's files live, if not on disks that
        can be made to fail. `open_files`: those of all nodes; its `make_room` should be the file system's. `security`:
        what clients have to show. `ports`: that of each broker in order, where they do not follow each other from
        `port` on. `advertised_host`: the host in the addresses that clients get; all listen on `listen_host`, loopback
        by default, where 0.0.0.0 is every address of this machine.
        `log_dir_bytes`: how many bytes each log directory of a broker holds, in order, or one size for all of them.
        """
        if brokers < 1:
            raise StartupError(f"brokers: found {brokers}, wanted at least 1")
        if racks is not None and len(racks) != brokers:
            raise StartupError(f"racks: found {len(racks)}, wanted one for each of {brokers} brokers")
        if first_broker_id < 0:
            raise StartupError(f"first_broker_id: found {first_broker_id}, wanted at least 0")
        if ports is not None and len(ports) != brokers:
            raise StartupError(f"ports: found {len(ports)}, wanted one for each of {brokers} brokers")
        if advertised_host is not None and not re.fullmatch(r"[\w.-]{1,255}", advertised_host):
            raise StartupError(
                f"advertised_host: found {advertised_host[:300]!r}, wanted a host's name or IPv4 address"
            )
        if advertised_host is None and listen_host == EVERY_ADDRESS:
            raise StartupError(f"listen_host: found {EVERY_ADDRESS} without advertised_host, the name that clients get")
        if log_dirs < 1:
            raise StartupError(f"log_dirs: found {log_dirs}, wanted at least 1")
        if log_dir_bytes is not None and len(log_dir_bytes) not in (1, log_dirs):
            raise StartupError(f"log_dir_bytes: found {len(log_dir_bytes)} sizes, wanted 1 or {log_dirs}")
        if log_dir_bytes is not None and min(log_dir_bytes) < 1:
            raise StartupError(f"log_dir_bytes: found {min(log_dir_bytes)}, wanted 1 or more")
        self._settings = dict(config or {})
        defaults = SEVERAL_NODES if brokers > 1 else {}
        try:
            self._config = BrokerConfig.from_settings({**defaults, **self._settings})
        except InvalidConfig as error:
            raise StartupError(str(error)) from None
        numbered = [port + index if port else 0 for index in range(brokers)] if ports is None else ports
        self._ports = dict(enumerate(numbered, start=first_broker_id))
        self._first_nodes = tuple(self._ports)
        self._internal_ports: dict[int, int] = {}
        self._racks = dict(enumerate(racks or (), start=first_broker_id))
        self._log_dirs = log_dirs
        self._log_dir_bytes = None if log_dir_bytes is None else list(log_dir_bytes) * (log_dirs // len(log_dir_bytes))
        self._advertised_host = advertised_host
        self._listen_host = listen_host
        self._security = security
        self._data_dir = None if data_dir is None else _tidy(data_dir)
        self.clock = clock or SystemClock()
        self._random = random or SystemRandom()  # nonces and salts of SCRAM are drawn from it too
        self._open_files = OpenFiles() if open_files is None else open_files
        self._network: Network = network or TcpNetwork(make_room=self._open_files.make_room)
        self._loop: asyncio.AbstractEventLoop | None = None
        on_loop = OnLoop(lambda: self._loop)
        self.faults = Faults(on_loop)
        # Nothing in a temporary directory outlives the cluster: there is nothing that an fsync could save.
        self._files = FaultyFileSystem(OsFileSystem(fsync=data_dir is not None, make_room=self._open_files.make_room))
        self._filesystem = filesystem or (lambda node: self._files)
        self.links = Links(on_loop, nodes=lambda: self.node_ids)
        self.links.on_change(self._links_changed)
        self.disks = Disks(self._files, self.faults, log_dirs=self._log_dirs_of)
        self._running = AsyncExitStack()
        self._held: dict[int, list[Reservation]] = {}
        self._around: Surroundings | None = None
        self.nodes: dict[int, Node] = {}
        """The nodes that run (also those that are paused)."""
        self.killed: set[int] = set()
        """Those that were killed and not started again."""

    # --- what there is

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every broker, comma-separated, as clients get them."""
        host = self._advertised_host or self._listen_host
        return ",".join(f"{host}:{self._ports[node]}" for node in sorted(self._ports))

    @property
    def ports(self) -> list[int]:
        """The port of each broker, in the order of their numbers."""
        return [self._ports[node] for node in sorted(self._ports)]

    @property
    def node_ids(self) -> list[int]:
        """Every node, running or not."""
        return sorted(self._ports)

    @property
    def voters(self) -> Sequence[int]:
        """The nodes that keep the metadata log together."""
        return self._first_nodes[: VOTERS if len(self._first_nodes) >= VOTERS else 1]

    @property
    def brokers(self) -> dict[int, Broker]:
        """The brokers that run, by id."""
        return {node_id: node.broker for node_id, node in self.nodes.items()}

    @property
    def controller(self) -> Controller | None:
        """The active controller; None while there is none."""
        active = (node.controller for node in self.nodes.values() if node.controller.is_active and not node.is_paused)
        return next(active, None)

    # --- life of the cluster

    async def start(self) -> None:
        """Start everything. If a part cannot start, nothing is left running, and StartupError says what is missing and
        why."""
        try:
            await self._start()
        except BrokerError as error:
            await self._running.aclose()
            raise StartupError(error.message) from None
        except OSError as error:
            await self._running.aclose()
            path = error.filename or self._data_dir or "the temporary directory"
            raise StartupError(storage_error(error, path=path, doing="starting").message) from error
        except BaseException:
            await self._running.aclose()
            raise

    async def stop(self) -> None:
        """Stop the brokers, close the logs cleanly, remove a temporary directory."""
        await self._running.aclose()

    async def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._security is not None and self._security.uses_tls:
            from broker_embedded.server.net.tls import server_context  # few clusters encrypt

            server_context(self._security)  # files that cannot be used are found before anything is opened
        data_dir = self._open_data_dir()
        self._around = Surroundings(
            cluster_id=self._cluster_id(self._filesystem(self._first_nodes[0]), data_dir),
            voters=self.voters,
            data_dir=data_dir,
            network=self._network,
            links=self.links,
            addresses={},
            clock=self.clock,
            random=self._random,
            loop=self._loop,
            new_uuid_text=self._new_uuid_text,
            open_files=self._open_files,
            faults_of=self.faults.on_broker,
            security=self._security,
        )
        self._running.callback(self._release_ports)
        self._running.push_async_callback(self._stop_nodes)
        for node_id in self.node_ids:
            self._limit_disks(node_id)
            self._open_node(node_id)
        for node in self.nodes.values():
            await node.start_quorum()
        await self._give_users_their_credentials()
        if len(self.nodes) == 1:
            await self.nodes[self._first_nodes[0]].join()
        else:
            await asyncio.gather(*(node.join() for node in self.nodes.values()))
        await self._fence_who_is_gone()
        await self._until_all_know_each_other()

    async def _give_users_their_credentials(self) -> None:
        """Create the users' credentials before clients are served. Passwords that were changed since the last start are
        set again."""
        if self._security is None or not self._security.users:
            return
        from broker_embedded.security.listener import missing_credentials

        security = self._security

        async def give(controller: Controller) -> None:
            missing = missing_credentials(security, controller.image, self._random)
            if missing:
                await controller.set_scram_credentials(missing)

        await self.have_changed(give)

    async def _fence_who_is_gone(self) -> None:
        """Fence brokers that are registered but not started, so that nothing waits for their sessions to expire: the
        data may come from a larger cluster."""

        async def fence(controller: Controller) -> None:
            gone = [each.broker_id for each in controller.image.live_brokers() if each.broker_id not in self._ports]
            if gone:
                await controller.fence_brokers(gone)

        await self.have_changed(fence)

    async def have_changed(self, change: Callable[[Controller], Awaitable[None]]) -> None:
        """Make a change on the active controller. If it loses its leadership meanwhile, `change` begins again on the
        next one."""
        deadline = asyncio.get_running_loop().time() + CHANGE_TIMEOUT_S
        while True:
            try:
                return await change(await self.active_controller())
            except BrokerError as error:
                if error.code is not ErrorCode.NOT_CONTROLLER or asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(POLL_S)

    def _open_data_dir(self) -> str:
        if self._data_dir is None:
            directory = temporary.make()
            self._running.callback(temporary.remove, directory)
            return directory
        try:
            self._filesystem(self._first_nodes[0]).make_dirs(self._data_dir)
        except OSError as error:
            reason = error.strerror or error
            raise StartupError(f"data directory {self._data_dir} cannot be used: {reason}") from None
        return self._data_dir

    async def _stop_nodes(self) -> None:
        """Stop the nodes, the quorum's voters last: brokers close their logs while there still is a controller."""
        for node in self.nodes.values():
            node.expect_the_end()
        for node in sorted(self.nodes.values(), key=lambda node: -node.node_id):
            if self._data_dir is None:
                await node.kill()  # its directories are removed next: nobody would read what a clean end writes
            else:
                await node.stop()
        self.nodes.clear()

    def _cluster_id(self, fs: FileSystem, data_dir: str) -> str:
        """Return the cluster id that was given to a metadata log's directory; a new one if all are new."""
        for node_id in self.node_ids:
            properties = read_meta_properties(fs, f"{data_dir}/controller-{node_id}") or {}
            if "cluster.id" in properties:
                return properties["cluster.id"]
        return self._new_uuid_text()

    def _new_uuid_text(self) -> str:
        return uuid_text(random_uuid(self._random))

    # --- life of a node

    def _open_node(self, node_id: int) -> Node:
        assert self._around is not None
        self._release_ports_of(node_id)
        rack = self._racks.get(node_id)
        settings = {**self._settings, **({"broker.rack": rack} if rack is not None else {})}
        internal = self._internal_ports.get(node_id, 0) if len(self._ports) > 1 else None
        node = Node(
            node_id,
            around=self._around,
            fs=self._filesystem(node_id),
            settings=NodeSettings(
                config=self._config if rack is None else self._config.with_settings({"broker.rack": rack}),
                static_settings=settings,
                port=self._ports[node_id],
                internal_port=internal,
                log_dirs=self._log_dirs,
                advertised_host=self._advertised_host,
                listen_host=self._listen_host,
            ),
        )
        self._ports[node_id] = node.port  # the same one after a restart: clients come back to it
        if node.internal_port is not None:
            self._internal_ports[node_id] = node.internal_port
        self.nodes[node_id] = node
        return node

    def node(self, node_id: int) -> Node:
        """Return a node that runs; InvalidFault says which do."""
        if node_id not in self.nodes:
            raise InvalidFault(f"broker: found {node_id}, wanted one that runs: {sorted(self.nodes)}")
        return self.nodes[node_id]

    async def kill(self, node_id: int) -> None:
        """End a node as `kill -9` does: connections are reset, nothing is handed over, nothing is closed cleanly."""
        node = self.node(node_id)
        del self.nodes[node_id]
        self.killed.add(node_id)
        self.faults.drop(node_id)
        await node.kill()
        self._hold_ports(node_id)

    async def stop_broker(self, node_id: int) -> None:
        """Shut a node down as an operator does: its leaderships move first, its logs are closed cleanly."""
        node = self.node(node_id)
        await node.hand_over()
        del self.nodes[node_id]
        self.faults.drop(node_id)
        await node.stop()
        self._hold_ports(node_id)

    async def start_broker(self, node_id: int) -> None:
        """Start a node that was killed or stopped, on its old ports and directories; returns when it serves."""
        if node_id not in self._ports:
            raise InvalidFault(f"broker: found {node_id}, wanted one of {self.node_ids}")
        if node_id in self.nodes:
            raise InvalidFault(f"broker: found {node_id}, which runs; wanted one that was killed or stopped")
        node = self._open_node(node_id)
        await node.start_quorum()
        await node.join()

    async def add_broker(self, *, rack: str | None = None) -> int:
        """Add a broker, which follows the metadata log and gets its share of new partitions; returns its id."""
        if len(self._ports) == 1:
            raise InvalidFault("a cluster that was started with one broker listens for no others: start it with two")
        node_id = max(self._ports) + 1
        self._ports[node_id] = 0
        if rack is not None:
            self._racks[node_id] = rack
        self._limit_disks(node_id)
        await self.start_broker(node_id)
        return node_id

    def _limit_disks(self, node_id: int) -> None:
        for number, size in enumerate(self._log_dir_bytes or ()):
            self._running.callback(self.disks.limited(node_id, limit_bytes=size, dir=number).remove)

    async def pause(self, node_id: int) -> None:
        """Make a node do nothing: it neither reads nor sends, and its timers wait. Connections stay open."""
        self.node(node_id).pause()

    async def resume(self, node_id: int) -> None:
        """End a pause."""
        self.node(node_id).resume()

    def _links_changed(self) -> None:
        """Close what is open over links that are cut now."""
        for node in self.nodes.values():
            node.peers.links_changed()

    def _log_dirs_of(self, node_id: int) -> Sequence[str]:
        if node_id not in self._ports or self._around is None:
            raise InvalidFault(f"broker: found {node_id}, wanted one of {self.node_ids}")
        return log_dirs(self._around.data_dir, node_id, self._log_dirs)

    def _hold_ports(self, node_id: int) -> None:
        """Keep the ports of a node that is down, so that nothing else gets them."""
        places = [(self._listen_host, self._ports[node_id])]
        if node_id in self._internal_ports:
            places.append((HOST, self._internal_ports[node_id]))
        self._held[node_id] = [self._network.reserve(host, port) for host, port in places]

    def _release_ports_of(self, node_id: int) -> None:
        for reservation in self._held.pop(node_id, ()):
            reservation.release()

    def _release_ports(self) -> None:
        for node_id in list(self._held):
            self._release_ports_of(node_id)

    # --- how things are

    async def controller_id(self) -> int:
        controller = self.controller
        return NO_LEADER if controller is None else controller.leader_id

    async def partition_state(self, topic: str, partition: int) -> PartitionImage:
        """Return the metadata of the active controller, or the newest of any node while there is none."""
        state = self._latest_image().partition(TopicPartition(topic, partition))
        if state is None:
            raise KeyError(f"there is no partition {topic}-{partition}")
        return state

    def _latest_image(self) -> ClusterImage:
        controller = self.controller
        if controller is not None:
            return controller.image
        return newest(node.broker.metadata.image for node in self.nodes.values())

    # --- waiting

    async def wait_until(self, is_so: Callable[[], bool], *, timeout_s: float, what: Callable[[], str]) -> None:
        """Wait for a condition; TimeoutError says `what` was waited for and how things stand."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not is_so():
            if asyncio.get_running_loop().time() > deadline:
                raise TimeoutError(f"after {timeout_s:g} s: {what()}")
            await asyncio.sleep(POLL_S)

    async def active_controller(self, *, timeout_s: float = 10.0) -> Controller:
        """Return the active controller, waiting for an election if one is under way."""
        await self.wait_until(
            lambda: self.controller is not None,
            timeout_s=timeout_s,
            what=lambda: f"no controller is active; nodes {sorted(self.nodes)} of {self.node_ids} run",
        )
        assert self.controller is not None
        return self.controller

    async def until_known(self, offset: int, *, timeout_s: float = 10.0) -> None:
        """Wait until every live broker has the metadata up to `offset`."""

        def behind() -> list[int]:
            controller = self.controller
            alive = {each.broker_id for each in controller.image.live_brokers()} if controller is not None else set()
            return [
                node_id
                for node_id, node in self.nodes.items()
                if node_id in alive and not node.is_paused and node.broker.metadata.image.offset < offset
            ]

        await self.wait_until(
            lambda: not behind(), timeout_s=timeout_s, what=lambda: f"brokers {behind()} are behind in the metadata"
        )

    async def _until_all_know_each_other(self) -> None:
        def unknown() -> list[tuple[int, int]]:
            return [
                (node_id, other)
                for node_id, node in self.nodes.items()
                for other in self.nodes
                if other not in {each.broker_id for each in node.broker.metadata.image.live_brokers()}
            ]

        await self.wait_until(
            lambda: not unknown(),
            timeout_s=30,
            what=lambda: "; ".join(f"broker {node} does not know broker {other}" for node, other in unknown()),
        )

    async def wait_for_leader(self, topic: str, partition: int, *, leader: int | None, timeout_s: float) -> int:
        """Wait until a partition is led, and its leader has taken over."""
        wanted = TopicPartition(topic, partition)

        def found() -> int:
            state = self._latest_image().partition(wanted)
            if state is None or state.leader not in self.nodes or leader not in (None, state.leader):
                return NO_LEADER
            led = self.nodes[state.leader].broker.replicas.partition(wanted)
            return state.leader if led is not None and led.is_leader else NO_LEADER

        await self.wait_until(
            lambda: found() != NO_LEADER,
            timeout_s=timeout_s,
            what=lambda: (
                f"wanted a leader of {wanted}{'' if leader is None else f', broker {leader}'};"
                f" found {self._latest_image().partition(wanted)}"
            ),
        )
        return found()

    async def wait_for_isr(self, topic: str, partition: int, *, isr: set[int] | None, timeout_s: float) -> None:
        """Wait until exactly `isr`, or every replica, is in sync, and the leader knows."""
        wanted = TopicPartition(topic, partition)

        def is_so() -> bool:
            state = self._latest_image().partition(wanted)
            if state is None or state.leader not in self.nodes:
                return False
            led = self.nodes[state.leader].broker.replicas.partition(wanted)
            is_known = led is not None and set(led.isr) == set(state.isr)
            return is_known and set(state.isr) == (set(state.replicas) if isr is None else isr)

        await self.wait_until(
            is_so,
            timeout_s=timeout_s,
            what=lambda: (
                f"wanted {'all replicas' if isr is None else sorted(isr)} of {wanted} in sync;"
                f" found {self._latest_image().partition(wanted)}"
            ),
        )


def _tidy(directory: str | Path) -> str:
    """As pathlib writes it. That is loaded only here: a broker whose files are temporary starts without it."""
    from pathlib import Path

    return str(Path(directory))
