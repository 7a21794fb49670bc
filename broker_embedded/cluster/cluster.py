"""All brokers and the controller of one cluster, on one event loop.

Directory layout below the data directory: `controller/` holds the metadata log, `broker-<id>/` is the log directory of
a broker. The cluster id lives in the metadata log's directory and is the same after a restart.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from uuid import UUID

from broker_embedded.common.clock import Clock, SystemClock
from broker_embedded.common.config import BrokerConfig, InvalidConfig
from broker_embedded.common.errors import BrokerError, StartupError
from broker_embedded.common.filesystem import FileSystem
from broker_embedded.common.os_filesystem import OsFileSystem
from broker_embedded.common.types import CLUSTER_METADATA_TOPIC
from broker_embedded.controller.controller import Controller
from broker_embedded.controller.quorum import SingleVoterQuorum
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.metadata.records import ResourceType
from broker_embedded.replication.log_settings import log_config
from broker_embedded.server.broker import Broker
from broker_embedded.server.network import Listener, TcpNetwork
from broker_embedded.storage.checkpoints import read_meta_properties
from broker_embedded.storage.log_config import LogConfig
from broker_embedded.storage.log_manager import Intervals, LogManager
from ottla_wire.protocol.primitives import uuid_text

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
CONTROLLER_NODE = 1


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
    ) -> None:
        if brokers < 1:
            raise StartupError(f"brokers: found {brokers}, wanted at least 1")
        self._settings = dict(config or {})
        try:
            self._config = BrokerConfig.from_settings(self._settings)
        except InvalidConfig as error:
            raise StartupError(str(error)) from None
        self._ports = {node: port + node - 1 if port else 0 for node in range(1, brokers + 1)}
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._clock = clock or SystemClock()
        self._random = random or Random()
        self._running = AsyncExitStack()
        self.brokers: dict[int, Broker] = {}
        self.controller: Controller | None = None

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every broker, comma-separated."""
        return ",".join(f"{HOST}:{self._ports[node]}" for node in sorted(self._ports))

    async def start(self) -> None:
        """Start everything or, if anything cannot be had, nothing: then StartupError says what and why."""
        try:
            await self._start()
        except BrokerError as error:
            await self._running.aclose()
            raise StartupError(error.message) from None
        except BaseException:
            await self._running.aclose()
            raise

    async def stop(self) -> None:
        """Stop the brokers, close the logs cleanly, remove a temporary directory."""
        await self._running.aclose()
        self.brokers = {}
        self.controller = None

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        sockets: dict[int, Listener] = {}
        network = TcpNetwork()
        for node, port in self._ports.items():
            sockets[node] = network.listen(HOST, port)
            self._running.callback(sockets[node].close)
            self._ports[node] = sockets[node].port  # the same one after a restart: clients come back to it
        data_dir = self._open_data_dir()
        # Nothing in a temporary directory outlives the cluster: there is nothing that an fsync could save.
        fs = OsFileSystem(fsync=self._data_dir is not None)
        directory = data_dir / "controller"
        metadata_logs = LogManager([str(directory)], fs=fs, clock=self._clock, cleaner_enabled=False)
        self._running.callback(metadata_logs.close)
        cluster_id = self._cluster_id(fs, str(directory))
        self._bind(metadata_logs, CONTROLLER_NODE, cluster_id)
        metadata_logs.load_all()
        metadata_log = metadata_logs.get_or_create(CLUSTER_METADATA_TOPIC, 0)
        quorum = SingleVoterQuorum(voter_id=CONTROLLER_NODE, metadata_log=metadata_log, clock=self._clock)
        controller = Controller(
            cluster_id=cluster_id, quorum=quorum, config=self._config, random=self._random, loop=loop
        )
        self.controller = controller
        gone = [node for node, broker in controller.image.brokers.items() if node not in sockets and not broker.fenced]
        if gone:
            await controller.fence_brokers(gone)
        for node, listener in sockets.items():
            logs = self._open_logs(data_dir / f"broker-{node}", fs, controller.image)
            self._running.callback(logs.close)
            self._bind(logs, node, cluster_id)
            logs.load_all()
            broker = Broker(
                node_id=node,
                listener=listener,
                loop=loop,
                clock=self._clock,
                random=self._random,
                cluster_id=cluster_id,
                config=self._config,
                static_settings=self._settings,
                controller=controller,
                quorum=quorum,
                logs=logs,
            )
            self.brokers[node] = broker
            self._running.push_async_callback(broker.stop)
            await broker.start()

    def _open_data_dir(self) -> Path:
        if self._data_dir is None:
            temporary = Path(tempfile.mkdtemp(prefix="ottla-broker-"))
            self._running.callback(shutil.rmtree, temporary, ignore_errors=True)
            return temporary
        try:
            self._data_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StartupError(f"data directory {self._data_dir} cannot be used: {error.strerror or error}") from None
        return self._data_dir

    def _open_logs(self, directory: Path, fs: FileSystem, image: ClusterImage) -> LogManager:
        """A broker's log directory; the settings of what is found in it are those of the metadata so far."""
        config = self._config

        def config_for(topic: str) -> LogConfig:
            return log_config(config, image.config_overrides(ResourceType.TOPIC, topic))

        return LogManager(
            [str(directory)],
            fs=fs,
            clock=self._clock,
            config_for=config_for,
            intervals=Intervals(
                retention_check_ms=config.log_retention_check_interval_ms,
                recovery_point_checkpoint_ms=config.log_flush_offset_checkpoint_interval_ms,
                high_watermark_checkpoint_ms=config.replica_high_watermark_checkpoint_interval_ms,
            ),
            cleaner_enabled=False,  # the broker steps it, so that a long cleaning does not hold up requests
        )

    def _bind(self, logs: LogManager, node: int, cluster_id: str) -> None:
        """Write meta.properties, or refuse the directory of another cluster or broker."""
        logs.bind_identity(cluster_id=cluster_id, node_id=node, new_directory_id=self._new_uuid_text)

    def _cluster_id(self, fs: FileSystem, directory: str) -> str:
        """The cluster id that was given to the metadata log's directory; a new one if it is new."""
        properties = read_meta_properties(fs, directory) or {}
        return properties.get("cluster.id") or self._new_uuid_text()

    def _new_uuid_text(self) -> str:
        return uuid_text(UUID(int=self._random.getrandbits(128), version=4).bytes)
