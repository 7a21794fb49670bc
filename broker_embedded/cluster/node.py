"""One node of a cluster, as if it were a process: its part in the metadata quorum, its controller and its broker.

A node is made anew for each start, from what its directories hold. It ends in one of two ways: `stop`, which hands its
leaderships over and closes its logs cleanly, or `kill`, after which its directories look as after `kill -9`.

    controller-N/   __cluster_metadata-0, quorum-state
    broker-N/       the log directory; broker-N/dir-K with several of them
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from random import Random
from typing import TYPE_CHECKING

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.clock import Clock
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.faults import NO_FAULTS, FaultHook
from broker_embedded.common.filesystem import FileSystem
from broker_embedded.common.topic_settings import TopicConfig
from broker_embedded.common.types import CLUSTER_METADATA_TOPIC
from broker_embedded.controller.controller import Controller
from broker_embedded.controller.quorum import MetadataQuorum, SingleVoterQuorum
from broker_embedded.metadata.records import ResourceType
from broker_embedded.replication.log_settings import usable_topic_config
from broker_embedded.server.broker import Broker
from broker_embedded.server.net.network import Listener, Network
from broker_embedded.server.net.socket_server import SocketServer
from broker_embedded.server.peers.peer_connections import Address, PeerConnections, PeerLinks
from broker_embedded.storage.file_pool import OpenFiles
from broker_embedded.storage.log import Log
from broker_embedded.storage.log_manager import LogManager
from broker_embedded.storage.schedule import Intervals
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.primitives import uuid_from_text

if TYPE_CHECKING:
    from broker_embedded.security.settings import Security

HOST = "127.0.0.1"
HAND_OVER_MS = 10_000


@fact
class Surroundings:
    """Objects shared by the nodes of one cluster."""

    cluster_id: str
    voters: Sequence[int]
    data_dir: str
    network: Network
    links: PeerLinks
    addresses: MutableMapping[int, Address]
    """Addresses at which the nodes listen for each other."""
    clock: Clock
    random: Random
    loop: asyncio.AbstractEventLoop
    new_uuid_text: Callable[[], str]
    open_files: OpenFiles
    """Those of all nodes: together they may open as many as the process may."""
    faults_of: Callable[[int], FaultHook] = lambda node: NO_FAULTS
    security: Security | None = None
    """Authentication of clients. The nodes use separate listeners between them, in plain text."""


@fact
class NodeSettings:
    """Settings of one node's start. `internal_port` is None in a cluster of one, which has no peers."""

    config: BrokerConfig
    static_settings: Mapping[str, object]
    port: int
    internal_port: int | None
    log_dirs: int = 1
    advertised_host: str | None = None
    """Advertised address for clients; None: the address of the listener."""
    listen_host: str = HOST
    """Address that the listener of clients is bound to. That of the nodes between them stays on loopback."""


class Node:
    """See the module. `start_quorum`, then `join`; then `stop` or `kill`, once."""

    def __init__(self, node_id: int, *, around: Surroundings, fs: FileSystem, settings: NodeSettings) -> None:
        """Open the directories and listen; StartupError if either cannot be had."""
        self.node_id = node_id
        self._around = around
        self._fs = fs
        self._settings = settings
        self.is_paused = False
        self._log_dir_ids: list[bytes] = []
        self._undo: list[Callable[[], None]] = []
        try:
            self._open()
        except BaseException:
            for undo in reversed(self._undo):
                undo()
            raise

    def _open(self) -> None:
        around, settings = self._around, self._settings
        self._listener = self._listen(settings.port, settings.listen_host)
        self._internal: Listener | None = None
        if settings.internal_port is not None:
            self._internal = self._listen(settings.internal_port)
            around.addresses[self.node_id] = (self._internal.host, self._internal.port)
        self._metadata_logs = self._open_logs(
            [f"{around.data_dir}/controller-{self.node_id}"], None, must_be_whole=True
        )
        self.peers = PeerConnections(
            node_id=self.node_id,
            network=around.network,
            addresses=around.addresses,
            loop=around.loop,
            links=around.links,
            detects_deaths=settings.config.peer_death_detection_enable,
        )
        self.quorum = self._make_quorum()
        self.controller = Controller(
            cluster_id=around.cluster_id,
            quorum=self.quorum,
            config=settings.config,
            random=around.random,
            loop=around.loop,
            clock=around.clock,
            death_probe=self.peers,
        )
        self.logs = self._open_logs(log_dirs(around.data_dir, self.node_id, settings.log_dirs), self._log_config)
        self.broker = Broker(
            node_id=self.node_id,
            listener=self._listener,
            loop=around.loop,
            clock=around.clock,
            random=around.random,
            cluster_id=around.cluster_id,
            config=settings.config,
            static_settings=settings.static_settings,
            controller=self.controller,
            quorum=self.quorum,
            peers=self.peers,
            logs=self.logs,
            log_dir_ids=self._log_dir_ids,
            faults=around.faults_of(self.node_id),
            security=around.security,
            advertised_host=settings.advertised_host,
        )
        if tuple(around.voters) == (self.node_id,):
            self._metadata_logs.directories.add_listener(self._on_metadata_lost)
        self.internal_server: SocketServer | None = None
        if self._internal is not None:
            self.internal_server = SocketServer(
                listener=self._internal,
                config=settings.config,
                clock=around.clock,
                loop=around.loop,
                dispatcher=self.broker.dispatcher,
                on_disconnect=self.controller.deaths.on_connection_closed,
                is_for_peers=True,
            )

    def _on_metadata_lost(self, path: str, logs: Sequence[Log]) -> None:
        """Give up the start of a broker whose metadata log failed: no other voter could continue it."""
        reason = self._metadata_logs.directories.offline[path]
        self.broker.lifecycle.give_up_start(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} failed: {reason}"))

    def _listen(self, port: int, host: str = HOST) -> Listener:
        listener = self._around.network.listen(host, port)
        self._undo.append(listener.close)
        return listener

    def _open_logs(
        self, dirs: Sequence[str], config_for: Callable[[str], TopicConfig] | None, *, must_be_whole: bool = False
    ) -> LogManager:
        around, config = self._around, self._settings.config
        logs = LogManager(
            dirs,
            fs=self._fs,
            clock=around.clock,
            open_files=around.open_files,
            config_for=config_for,
            intervals=Intervals(
                retention_check_ms=config.log_retention_check_interval_ms,
                recovery_point_checkpoint_ms=config.log_flush_offset_checkpoint_interval_ms,
                high_watermark_checkpoint_ms=config.replica_high_watermark_checkpoint_interval_ms,
            ),
            must_be_whole=must_be_whole,
            cleaner_enabled=False,  # the broker steps it, so that a long cleaning does not hold up requests
        )
        self._undo.append(logs.abandon)
        ids = logs.directories.bind_identity(
            cluster_id=around.cluster_id, node_id=self.node_id, new_directory_id=around.new_uuid_text
        )
        self._log_dir_ids = [uuid_from_text(text) for text in ids.values()]
        logs.load_all()
        return logs

    def _log_config(self, topic: str) -> TopicConfig:
        """Return the settings of a log found on disk, from the metadata replayed so far."""
        overrides = self.controller.image.config_overrides(ResourceType.TOPIC, topic)
        return usable_topic_config(self._settings.config, overrides)

    def _make_quorum(self) -> MetadataQuorum:
        around, config = self._around, self._settings.config
        metadata_log = self._metadata_logs.get_or_create(CLUSTER_METADATA_TOPIC, 0)
        if tuple(around.voters) == (self.node_id,):
            return SingleVoterQuorum(
                voter_id=self.node_id,
                metadata_log=metadata_log,
                clock=around.clock,
                loop=around.loop,
                cluster_id=around.cluster_id,
            )
        # Not loaded by a broker that is alone, which shall start quickly.
        from broker_embedded.controller.raft.member import Timeouts
        from broker_embedded.controller.raft.raft_quorum import RaftQuorum

        return RaftQuorum(
            node_id=self.node_id,
            voters=around.voters,
            metadata_log=metadata_log,
            fs=self._fs,
            clock=around.clock,
            loop=around.loop,
            random=around.random,
            peers=self.peers,
            cluster_id=around.cluster_id,
            timeouts=Timeouts.of(config),
        )

    # --- life

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def internal_port(self) -> int | None:
        return None if self._internal is None else self._internal.port

    async def start_quorum(self) -> None:
        """Answer the other nodes, and take part in the metadata quorum."""
        if self.internal_server is not None:
            await self.internal_server.start()
        self.quorum.start()

    async def join(self) -> None:
        """Become a broker of the cluster; returns when clients are served."""
        await self.broker.start()

    async def hand_over(self) -> None:
        """Shut down in a controlled way: others lead what this node leads, and act as the controller."""
        await self.broker.hand_over(HAND_OVER_MS)
        await self.quorum.resign()

    def expect_the_end(self) -> None:
        """Expect all nodes to stop: no broker takes over from those that stop first."""
        self.peers.detects_deaths = False

    def pause(self) -> None:
        """Suspend the node: incoming data stays in the sockets, and outgoing requests wait."""
        self.is_paused = True
        for server in (self.broker.server, self.internal_server):
            if server is not None:
                server.pause()
        self.peers.pause()
        self.controller.pause()

    def resume(self) -> None:
        """Go on where the pause began."""
        self.is_paused = False
        self.controller.resume()
        self.peers.resume()
        for server in (self.broker.server, self.internal_server):
            if server is not None:
                server.resume()

    async def stop(self) -> None:
        """End in order: every log is closed cleanly."""
        await self.broker.stop()
        await self._end_quorum()
        self._metadata_logs.close()

    async def kill(self) -> None:
        """End at once: connections are reset, and the directories are left as they are."""
        if self.internal_server is not None:
            self.internal_server.abort()
        self.quorum.close()
        await self.broker.kill()
        await self._end_quorum()
        self._metadata_logs.abandon()

    async def _end_quorum(self) -> None:
        self.controller.close()
        self.quorum.close()
        if self.internal_server is not None:
            await self.internal_server.stop()


def log_dirs(data_dir: str, node_id: int, count: int) -> list[str]:
    """Return where a node keeps its partitions."""
    directory = f"{data_dir}/broker-{node_id}"
    return [directory] if count == 1 else [f"{directory}/dir-{number}" for number in range(count)]
