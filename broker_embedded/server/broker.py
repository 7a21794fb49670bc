"""One broker: what it is made of, in which order it starts and stops, and what its API handlers ask it for.

A broker knows its controller through `Controller`'s methods and the metadata log through the quorum's subscription;
both are given, so that the same broker runs beside its controller in one process or, later, reaches it over the wire.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any
from uuid import UUID

from broker_embedded.common.clock import Clock
from broker_embedded.common.config import BrokerConfig, InvalidConfig
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.faults import NO_FAULTS, FaultHook
from broker_embedded.common.peers import Peers
from broker_embedded.common.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from broker_embedded.controller.controller import Controller
from broker_embedded.controller.quorum import CommittedBatch, MetadataQuorum
from broker_embedded.controller.requests import NewTopic, TopicResult
from broker_embedded.coordinator.group.coordinator import GroupCoordinator
from broker_embedded.coordinator.runtime.partitioner import partition_for
from broker_embedded.coordinator.transaction.coordinator import TransactionCoordinator
from broker_embedded.metadata.cache import MetadataCache
from broker_embedded.metadata.delta import MetadataDelta
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.metadata.records import RegisterBroker, ResourceType
from broker_embedded.replication.fetch_session import FetchSessionCache
from broker_embedded.replication.replica_manager import ReplicaManager
from broker_embedded.server import apis as apis  # fills the table that the dispatcher reads
from broker_embedded.server.background import BackgroundWork
from broker_embedded.server.dispatcher import Dispatcher
from broker_embedded.server.futures import Promise, then
from broker_embedded.server.network import Listener
from broker_embedded.server.server import SocketServer
from broker_embedded.storage.log_manager import LogManager
from ottla_wire.protocol import ErrorCode

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
        logs: LogManager,
        faults: FaultHook = NO_FAULTS,
    ) -> None:
        self.node_id = node_id
        self.loop = loop
        self.clock = clock
        self.static_config = config
        self.static_settings = frozenset(static_settings)
        """Names that were set when the broker was started (DescribeConfigs says so)."""
        self.config = config
        self.controller = controller
        self.logs = logs
        self.faults = faults
        self.metadata = MetadataCache(cluster_id)
        self.metadata.add_listener(self._on_metadata)
        self.replicas = ReplicaManager(
            node_id=node_id, config=config, clock=clock, loop=loop, metadata=self.metadata, logs=logs
        )
        self.groups = GroupCoordinator(
            config=lambda: self.config,
            clock=clock,
            loop=loop,
            replicas=self.replicas,
            metadata=self.metadata,
            random=random,
        )
        self.peers: Peers | None = None
        """The other brokers, once there is a way to them."""
        self.transactions = TransactionCoordinator(
            node_id=node_id,
            config=lambda: self.config,
            clock=clock,
            loop=loop,
            replicas=self.replicas,
            metadata=self.metadata,
            offsets=self.groups,
            new_producer_id=self._tell_producer_id,
            peers=lambda: self.peers,
        )
        self.fetch_sessions = FetchSessionCache(slots=config.max_incremental_fetch_session_cache_slots, clock=clock)
        self.server = SocketServer(listener=listener, config=config, clock=clock, dispatcher=Dispatcher(self))
        self._random = random
        self._incarnation_id = random.randbytes(16)
        self.quorum = quorum
        self._producer_ids = iter(range(0))
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
        """Learn the metadata, register, lead what there is to lead, then accept connections."""
        self.quorum.subscribe(self._replay)
        registration = RegisterBroker(
            broker_id=self.node_id,
            incarnation_id=self._incarnation_id,
            broker_epoch=self.controller.next_broker_epoch(),
            host=self.server.host,
            port=self.server.port,
        )
        await self.controller.register_broker(registration)
        self.groups.start()
        self.transactions.start()
        await self.server.start()
        self._background.start()

    async def stop(self) -> None:
        """Cut the clients, stop waiting, close the logs cleanly."""
        self._background.stop()
        self.groups.stop()
        self.transactions.stop()
        await self.server.stop()
        self.replicas.close()
        self.logs.close()

    # --- metadata

    def _replay(self, batch: CommittedBatch) -> None:
        self.metadata.replay(
            batch.records, offset=batch.last_offset, epoch=batch.epoch, controller_id=self.quorum.leader_id
        )

    def _on_metadata(self, delta: MetadataDelta, image: ClusterImage) -> None:
        concerned = {(ResourceType.BROKER, ""), (ResourceType.BROKER, str(self.node_id))}
        if delta.changed_configs & concerned:
            self._reconfigure(image)

    def _reconfigure(self, image: ClusterImage) -> None:
        """Dynamic settings: those of this broker over those of all brokers over what it was started with."""
        settings: dict[str, str] = {}
        for name in ("", str(self.node_id)):
            settings.update(image.config_overrides(ResourceType.BROKER, name))
        try:
            self.config = self.static_config.with_settings(settings)
        except InvalidConfig as error:
            log.warning("broker %d: %s; the dynamic settings stay as they were", self.node_id, error)
            return
        self.replicas.reconfigure_all(self.config)

    # --- what handlers ask for

    def new_uuid(self) -> bytes:
        """A random uuid, as 16 bytes."""
        return UUID(int=self._random.getrandbits(128), version=4).bytes

    def endpoints_of(self, nodes: Iterable[int]) -> list[dict[str, Any]]:
        """Where brokers listen, as responses name leaders (KIP-951)."""
        brokers = self.metadata.image.brokers
        return [
            {"node_id": node, "host": brokers[node].host, "port": brokers[node].port, "rack": brokers[node].rack}
            for node in sorted(nodes)
            if node in brokers
        ]

    def auto_create_topics(self, names: Iterable[str]) -> asyncio.Future[list[TopicResult]]:
        """Create topics that a client asked about, with the broker's defaults; internal ones as they have to be."""
        wanted = [self._internal_topic(name) or NewTopic(name=name) for name in dict.fromkeys(names)]
        return self.controller.create_topics(wanted, validate_only=False)

    def ensure_internal_topic(self, name: str) -> Promise[None]:
        """Make an internal topic if it is not there. Kept when it is; BrokerError if it cannot be made."""
        ready: Promise[None] = Promise()
        if name in self.metadata.image.topics:
            ready.set_result(None)
            return ready

        def created(results: list[TopicResult]) -> None:
            error = results[0].error
            if error is None or error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                ready.set_result(None)
            else:
                ready.set_exception(error)

        then(self.auto_create_topics([name]), created)
        return ready

    def _internal_topic(self, name: str) -> NewTopic | None:
        config = self.config
        brokers = len(self.metadata.image.live_brokers())
        configs: Mapping[str, str]
        if name == GROUP_METADATA_TOPIC:
            partitions = config.offsets_topic_num_partitions
            factor = config.offsets_topic_replication_factor
            configs = {"segment.bytes": str(config.offsets_topic_segment_bytes), "compression.type": "producer"}
        elif name == TRANSACTION_STATE_TOPIC:
            partitions = config.transaction_state_log_num_partitions
            factor = config.transaction_state_log_replication_factor
            configs = {
                "compression.type": "uncompressed",
                "unclean.leader.election.enable": "false",
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "min.insync.replicas": str(min(config.transaction_state_log_min_isr, factor, brokers)),
            }
        else:
            return None
        return NewTopic(
            name=name,
            partitions=partitions,
            replication_factor=min(factor, brokers),
            configs={"cleanup.policy": "compact", **configs},
        )

    def partition_for_group(self, group_id: str) -> int:
        """The partition of __consumer_offsets that keeps a group, also before the topic exists."""
        topic = self.metadata.image.topic(GROUP_METADATA_TOPIC)
        count = len(topic.partitions) if topic is not None else self.config.offsets_topic_num_partitions
        return partition_for(group_id, count)

    def next_producer_id(self) -> Promise[int]:
        """A producer id that no other broker hands out."""
        promise: Promise[int] = Promise()
        following = next(self._producer_ids, None)
        if following is not None:
            promise.set_result(following)
            return promise

        def use(block: range) -> None:
            self._producer_ids = iter(block)
            promise.set_result(next(self._producer_ids))

        def refused(done: Promise[None]) -> None:
            error = done.exception()
            if error is not None:
                promise.set_exception(error)

        try:
            allocated = then(self.controller.allocate_producer_ids(self.node_id), use)
        except BrokerError as error:
            promise.set_exception(error)
        else:
            if isinstance(allocated, Promise):
                allocated.add_done_callback(refused)
        return promise

    def _tell_producer_id(self, tell: Callable[[int | BrokerError], None]) -> None:
        def done(promise: Promise[int]) -> None:
            error = promise.exception()
            if error is None:
                tell(promise.result())
            else:
                message = "no producer id can be had at the moment"
                tell(error if isinstance(error, BrokerError) else BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, message))

        self.next_producer_id().add_done_callback(done)
