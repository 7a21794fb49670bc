"""One broker: what it is made of, in which order it starts and stops, and what its API handlers ask it for.

What it wants of the controller it asks over the wire protocol, wherever the active controller is; what the controller
decided it learns from the metadata log, as every other node does. `controller` is the controller of this node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from random import Random
from typing import TYPE_CHECKING

from broker_embedded.common.broker_settings import BROKER_SETTINGS, BrokerConfig
from broker_embedded.common.clock import Clock, client_monotonic_ms
from broker_embedded.common.config_definition import InvalidConfig
from broker_embedded.common.faults import NO_FAULTS, FaultHook
from broker_embedded.common.types import SHARE_STATE_TOPIC
from broker_embedded.controller.commits import CommittedBatch
from broker_embedded.controller.controller import Controller
from broker_embedded.controller.quorum import MetadataQuorum
from broker_embedded.coordinator.group.coordinator import GroupCoordinator
from broker_embedded.coordinator.share.coordinator import ShareCoordinator
from broker_embedded.coordinator.transaction.coordinator import TransactionCoordinator
from broker_embedded.metadata.cache import MetadataCache
from broker_embedded.metadata.delta import MetadataDelta
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.metadata.records import ResourceType
from broker_embedded.replication.broker_parts import BrokerParts
from broker_embedded.replication.fetch_session import FetchSessionCache
from broker_embedded.replication.replica_manager import ReplicaManager
from broker_embedded.server import apis as apis  # fills the table that the dispatcher reads
from broker_embedded.server.life.background import BackgroundWork
from broker_embedded.server.life.broker_lifecycle import BrokerLifecycle
from broker_embedded.server.life.log_dir_reports import LogDirReports
from broker_embedded.server.net.network import Listener
from broker_embedded.server.net.socket_server import SocketServer
from broker_embedded.server.peers.controller_channel import ControllerChannel
from broker_embedded.server.peers.peer_connections import PeerConnections
from broker_embedded.server.peers.producer_ids import ProducerIds
from broker_embedded.server.peers.topic_creation import TopicCreation
from broker_embedded.server.peers.unreachable_leaders import UnreachableLeaders
from broker_embedded.server.requests.dispatcher import RequestDispatcher
from broker_embedded.share.dead_letters import DeadLetterWriter
from broker_embedded.share.share_partitions import SharePartitions
from broker_embedded.share.state_client import ShareStateClient
from broker_embedded.storage.log_manager import LogManager
from ottla_wire.protocol.primitives import random_uuid

if TYPE_CHECKING:
    from broker_embedded.security.listener import ListenerSecurity
    from broker_embedded.security.settings import Security
    from broker_embedded.server.authorization.authorization import Authorization
    from broker_embedded.server.net.connection import ClientConnection
    from broker_embedded.server.requests.client_quotas import ClientQuotas

log = logging.getLogger(__name__)


class Broker:
    """One node of a cluster. Everything here runs on the loop's thread."""

    def __init__(
        self,
        *,
        node_id: int,
        listener: Listener,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        random: Random,
        cluster_id: str,
        config: BrokerConfig,
        static_settings: Iterable[str],
        controller: Controller,
        quorum: MetadataQuorum,
        peers: PeerConnections,
        logs: LogManager,
        log_dir_ids: Sequence[bytes] = (),
        faults: FaultHook = NO_FAULTS,
        security: Security | None = None,
        advertised_host: str | None = None,
    ) -> None:
        """`advertised_host`: address in metadata responses, if not the listener's."""
        self.node_id = node_id
        self.loop = loop
        self.clock = clock
        self.static_config = config
        self.static_settings = frozenset(static_settings)
        """Names that were set when the broker was started (DescribeConfigs says so)."""
        self.config = config
        self.controller = controller
        self.quorum = quorum
        self.peers = peers
        self.logs = logs
        self.faults = faults
        self.quotas: ClientQuotas | None = None
        """While there are any: then every request is measured."""
        self.dispatcher = RequestDispatcher(self)
        peers.serve_locally(self.dispatcher)
        self.metadata = MetadataCache(cluster_id)
        self.authorization = self._authorizer()
        self.metadata.add_listener(self._on_metadata)
        self.unreachable_leaders = UnreachableLeaders(probe=peers, metadata=self.metadata, loop=loop, clock=clock)
        peers.on_loss = self.unreachable_leaders.lost
        self.controller_channel = ControllerChannel(
            peers=peers,
            quorum=quorum,
            loop=loop,
            random=random,
            attempt_timeout_ms=config.broker_session_timeout_ms,
        )
        self.lifecycle = BrokerLifecycle(
            node_id=node_id,
            host=advertised_host or listener.host,
            port=listener.port,
            controller=self.controller_channel,
            metadata=self.metadata,
            config=config,
            loop=loop,
            random=random,
            rack=config.broker_rack,
            log_dirs=log_dir_ids,
        )
        self._directory_ids = dict(zip(logs.directories.paths, log_dir_ids, strict=False))
        self._cordon()
        self.replicas = ReplicaManager(
            node_id=node_id,
            config=config,
            clock=clock,
            loop=loop,
            metadata=self.metadata,
            logs=logs,
            peers=peers,
            controller=self.controller_channel,
            broker_epoch=lambda: self.lifecycle.epoch,
        )
        self.log_dir_reports = LogDirReports(
            node_id=node_id,
            directory_ids=self._directory_ids,
            logs=logs,
            metadata=self.metadata,
            controller=self.controller_channel,
            lifecycle=self.lifecycle,
            loop=loop,
        )
        self.replicas.add_move_listener(lambda moved: self.log_dir_reports.moved(moved.topic_partition))
        self.topics = TopicCreation(
            controller=self.controller_channel, metadata=self.metadata, config=lambda: self.config, loop=loop
        )
        self.producer_ids = ProducerIds(
            node_id=node_id, controller=self.controller_channel, broker_epoch=lambda: self.lifecycle.epoch
        )
        parts = BrokerParts(
            node_id=node_id,
            config=lambda: self.config,
            replicas=self.replicas,
            metadata=self.metadata,
            clock=clock,
            loop=loop,
            peers=peers,
        )
        self.groups = GroupCoordinator(parts, random=random, share_states=lambda: self.share_state_client)
        self.transactions = TransactionCoordinator(
            parts, offsets=self.groups, new_producer_id=self.producer_ids.call_with_next
        )
        self.share_states = ShareCoordinator(parts)
        self.share_state_client: ShareStateClient = ShareStateClient(
            node_id=node_id,
            coordinator=self.share_states,
            metadata=self.metadata,
            loop=loop,
            peers=peers,
            ensure_topic=lambda: self.topics.ensure_internal(SHARE_STATE_TOPIC),
        )
        self.shares = SharePartitions(
            parts,
            persister=self.share_state_client,
            dead_letters=DeadLetterWriter(
                parts,
                create_topic=lambda name, configs, on_done: self.topics.create_with(name, configs, on_done),
            ),
        )
        self.fetch_sessions = FetchSessionCache(slots=config.max_incremental_fetch_session_cache_slots, clock=clock)
        self._random = random
        self.security = security
        self.server = SocketServer(
            listener=listener,
            config=config,
            clock=clock,
            loop=loop,
            dispatcher=self.dispatcher,
            security=self._listener_security(),
            on_connect=self._on_connect,
            on_disconnect=self.shares.on_disconnect,
        )
        self._background = BackgroundWork(
            loop=loop,
            clock=clock,
            logs=logs,
            cleaner_backoff_ms=lambda: self.config.log_cleaner_backoff_ms,
            cleaner_enabled=config.log_cleaner_enable,
            tasks=(self.server.close_idle,),
        )

    # --- life

    async def start(self) -> None:
        """Load the metadata, register, take over leaderships, then accept connections."""
        self.quorum.subscribe(self._replay)
        self.groups.start()
        self.transactions.start()
        self.share_states.start()
        self.replicas.add_leadership_listener(self.shares)
        await self.lifecycle.start()
        await self.server.start()
        self._background.start()

    async def hand_over(self, timeout_ms: int) -> bool:
        """Move leadership to other brokers. Returns False if that did not complete in time."""
        return await self.lifecycle.controlled_shutdown(timeout_ms)

    async def stop(self) -> None:
        """Cut the clients, stop waiting, close the logs cleanly."""
        await self._stop_serving()
        self.logs.close()

    async def kill(self) -> None:
        """End as a killed process does: nothing is answered and nothing is closed cleanly."""
        self.server.abort()
        await self._stop_serving()
        self.logs.abandon()

    async def _stop_serving(self) -> None:
        self._background.stop()
        self.lifecycle.close()
        self.log_dir_reports.close()
        self.controller_channel.close()
        self.groups.stop()
        self.transactions.stop()
        self.share_state_client.close()
        self.shares.close()
        self.share_states.stop()
        await self.server.stop()
        self.replicas.close()
        self.peers.close()

    # --- metadata

    def _replay(self, batch: CommittedBatch) -> None:
        self.metadata.replay(
            batch.records, offset=batch.last_offset, epoch=batch.epoch, controller_id=self.quorum.leader_id
        )

    def _on_metadata(self, delta: MetadataDelta, image: ClusterImage) -> None:
        concerned = {(ResourceType.BROKER, ""), (ResourceType.BROKER, str(self.node_id))}
        if delta.changed_configs & concerned:
            self._reconfigure(image)

        if image.client_quotas is not delta.base.client_quotas:
            self._set_quotas(image)

    def _set_quotas(self, image: ClusterImage) -> None:
        if not image.client_quotas:
            self.quotas = None
            return
        if self.quotas is None:
            from broker_embedded.server.requests.client_quotas import ClientQuotas  # few clusters have quotas

            self.quotas = ClientQuotas(self.static_config, now_ms=self.clock.monotonic_ms)
        self.quotas.replace(image.client_quotas)

    def _on_connect(self, connection: ClientConnection) -> None:
        if self.quotas is not None:
            throttle_ms = self.quotas.connected(connection.client_host)
            if throttle_ms:
                connection.turn_away(throttle_ms)

    def _reconfigure(self, image: ClusterImage) -> None:
        """Apply dynamic settings: this broker's override all brokers', which override the settings of the start."""
        settings: dict[str, str] = {}
        for name in ("", str(self.node_id)):
            given = image.config_overrides(ResourceType.BROKER, name)
            settings.update((setting, value) for setting, value in given.items() if setting in BROKER_SETTINGS)
        try:
            self.config = self.static_config.with_settings(settings)
        except InvalidConfig as error:
            log.warning("broker %d: %s; the dynamic settings stay as they were", self.node_id, error)
            return
        self.replicas.reconfigure_all(self.config)
        self._cordon()

    def _cordon(self) -> None:
        """Cordon log directories (KIP-1066): here, and reported to the controller."""
        unknown = self.logs.cordon(self.config.cordoned_log_dirs)
        if unknown:
            log.warning(
                "broker %d: cordoned.log.dirs: found %s, wanted some of %s, or *",
                self.node_id,
                ", ".join(sorted(unknown)),
                ", ".join(self.logs.directories.paths),
            )
        cordoned = self.logs.directories.cordoned
        self.lifecycle.cordon([each for path, each in self._directory_ids.items() if path in cordoned])

    def _listener_security(self) -> ListenerSecurity | None:
        if self.security is None:
            return None
        from broker_embedded.security.listener import ListenerSecurity  # most brokers ask nobody who they are

        keys = None
        if self.security.oauth is not None and self.security.oauth.jwks is not None:
            from broker_embedded.server.net.jwks import Jwks

            keys = Jwks(self.security.oauth, monotonic_ms=client_monotonic_ms(self.clock))
        return ListenerSecurity(
            self.security,
            image=lambda: self.metadata.image,
            random=self._random,
            session_ms=self.static_config.connections_max_reauth_ms,
            now_ms=self.clock.monotonic_ms,
            wall_ms=self.clock.now_ms,
            keys=keys,
        )

    def _authorizer(self) -> Authorization | None:
        if not self.config.authorizer_class_name:
            return None
        from broker_embedded.server.authorization.authorization import Authorization  # most brokers let everybody

        authorization = Authorization(self.config)
        self.metadata.add_listener(authorization.on_metadata)
        return authorization

    # --- what handlers ask for

    def new_uuid(self) -> bytes:
        """Return a random uuid, as 16 bytes."""
        return random_uuid(self._random)
