"""Broker registration, heartbeats, expiry and controlled shutdown on the active controller.

The rules are in `brokers` and `heartbeats`, who has called lately is in `sessions`; this puts them together, one change
after the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.errors import BrokerError
from broker_embedded.controller import brokers, elections
from broker_embedded.controller.change_queue import ChangeQueue, Decision
from broker_embedded.controller.heartbeats import BrokerHeartbeat, ControlState, HeartbeatReply, next_state, state_of
from broker_embedded.controller.sessions import BrokerSessions
from broker_embedded.metadata.delta import image_after
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.metadata.records import MetadataRecord, RegisterBroker
from ottla_wire.protocol import ErrorCode

log = logging.getLogger(__name__)

LINGER_MS = 1_500
"""Time for which a dead broker whose partitions have moved stays in the metadata, as it does while Kafka waits for a
session. librdkafka requests metadata once a second. If a broker vanishes and its partitions move in one response, it
drops the new leaders with the broker and waits another second.
"""


class BrokerHeartbeats:
    """Part of the controller; acts only while that is active."""

    def __init__(
        self,
        *,
        committed: Callable[[], ClusterImage],
        changes: ChangeQueue,
        sessions: BrokerSessions,
        config: BrokerConfig,
    ) -> None:
        self._committed = committed
        self._changes = changes
        self._sessions = sessions
        self._config = config

    def activate(self, *, silence_of: Callable[[int], int]) -> None:
        """Start a new term without any heartbeat yet. `silence_of` returns for how long the quorum has received nothing
        from a node."""
        self._sessions.restart({node: silence_of(node) for node in self._committed().brokers})

    def register(self, wanted: RegisterBroker, *, cluster_id: str) -> asyncio.Future[int]:
        """Return the broker epoch of a registration."""

        def decide() -> Decision[int]:
            image = self._changes.image
            if cluster_id != image.cluster_id:
                raise BrokerError(
                    ErrorCode.INCONSISTENT_CLUSTER_ID, f"found cluster id {cluster_id}, wanted {image.cluster_id}"
                )
            node = wanted.broker_id
            registration = replace(wanted, broker_epoch=image.offset + 1)  # where it will be in the metadata log
            records = brokers.register(
                image, registration, has_session=self._sessions.is_alive(node), config=self._config
            )
            self._sessions.begin(node)
            first = records[0]
            assert isinstance(first, RegisterBroker)
            return records, first.broker_epoch

        return self._changes.submit(decide)

    def unregister(self, node: int) -> asyncio.Future[None]:
        def decide() -> Decision[None]:
            records = brokers.unregister(self._changes.image, node, config=self._config)
            self._sessions.forget(node)
            return records, None

        return self._changes.submit(decide)

    def heartbeat(self, heartbeat: BrokerHeartbeat) -> asyncio.Future[HeartbeatReply]:
        """Return the response to a heartbeat. Raises STALE_BROKER_EPOCH for any other incarnation than the registered
        one.
        """
        broker = self._committed().brokers.get(heartbeat.broker_id)
        if broker is not None and broker.epoch == heartbeat.broker_epoch:
            # At once, not when its turn in the queue has come: a slow quorum must not make a broker look dead.
            self._sessions.touch(heartbeat.broker_id, metadata_offset=heartbeat.metadata_offset)
        return self._changes.submit(lambda: self._decide_heartbeat(heartbeat))

    def _decide_heartbeat(self, heartbeat: BrokerHeartbeat) -> Decision[HeartbeatReply]:
        image = self._changes.image
        node = heartbeat.broker_id
        broker = brokers.check_epoch(image, node, heartbeat.broker_epoch)
        self._sessions.touch(node, metadata_offset=heartbeat.metadata_offset)
        is_caught_up = heartbeat.metadata_offset >= broker.epoch
        before = state_of(broker)
        active = [other.broker_id for other in image.brokers.values() if other.is_active]
        after = next_state(
            before,
            heartbeat,
            is_caught_up=is_caught_up,
            leads=heartbeat.want_shut_down and elections.leads_anything(image, node),
            others_have_seen=self._sessions.have_seen_shutdown(node, active),
        )
        records = self._transition(image, node, before, after)
        if heartbeat.offline_log_dirs:
            image = image_after(image, records)
            records += brokers.take_directories_offline(image, node, heartbeat.offline_log_dirs, config=self._config)
        if heartbeat.cordoned_log_dirs is not None:
            records += brokers.cordon_directories(image, node, heartbeat.cordoned_log_dirs)
        reply = HeartbeatReply(
            is_caught_up=is_caught_up,
            is_fenced=after in (ControlState.FENCED, ControlState.SHUTDOWN_NOW),
            should_shut_down=after is ControlState.SHUTDOWN_NOW,
        )
        return records, reply

    def _transition(
        self, image: ClusterImage, node: int, before: ControlState, after: ControlState
    ) -> list[MetadataRecord]:
        if after is before:
            return []
        log.info("broker %d: %s -> %s", node, before.value, after.value)
        if after is ControlState.UNFENCED:
            return brokers.unfence(image, node, config=self._config)
        if after is ControlState.CONTROLLED_SHUTDOWN:
            records = brokers.begin_shutdown(image, node, config=self._config)
            self._sessions.set_shutdown_offset(node, image.offset + len(records))
            return records
        if after is ControlState.SHUTDOWN_NOW:
            self._sessions.forget(node)  # its successor need not wait for a session to end
        return brokers.fence(image, [node], config=self._config)

    def fence_expired(self) -> None:
        """Fence brokers without a heartbeat for a session. Part of the controller's periodic work."""
        expired = self._sessions.expired(self._unfenced())
        if expired:
            self._changes.submit(lambda: self._decide_expiry(expired))

    def _decide_expiry(self, expired: list[int]) -> Decision[None]:
        """Fence the expired brokers that have not sent a heartbeat since."""
        image = self._changes.image
        gone = [
            node
            for node in expired
            if node in image.brokers and not image.brokers[node].fenced and not self._sessions.is_alive(node)
        ]
        for node in gone:
            log.warning("broker %d has sent no heartbeat for %d ms: fenced", node, self._sessions.timeout_ms)
        return brokers.fence(image, gone, config=self._config), None

    def replace_dead(self, node: int, epoch: int) -> None:
        """Elect other leaders after the process that registered with `epoch` has ended, and allow a new
        registration.

        It is fenced later, when a session has passed as for any broker that is silent, and not before `LINGER_MS`.
        """

        def decide() -> Decision[None]:
            image = self._changes.image
            broker = image.brokers.get(node)
            if broker is None or broker.fenced or broker.epoch != epoch:
                return [], None
            self._sessions.end(node, linger_ms=LINGER_MS)
            records = brokers.replace_dead(image, node, config=self._config)
            log.warning("broker %d is dead, it refuses connections: %d partitions change", node, len(records))
            return records, None

        self._changes.submit(decide)

    def _unfenced(self) -> list[int]:
        return [broker.broker_id for broker in self._committed().live_brokers()]
