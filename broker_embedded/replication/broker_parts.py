"""The parts of a broker that its coordinators and its share partitions work with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.clock import Clock
from broker_embedded.common.peers import Peers
from broker_embedded.metadata.cache import MetadataCache
from broker_embedded.replication.replica_manager import ReplicaManager
from ottla_wire.facts import fact


@fact
class BrokerParts:
    node_id: int
    config: Callable[[], BrokerConfig]
    """The settings as they are now."""
    replicas: ReplicaManager
    metadata: MetadataCache
    clock: Clock
    loop: asyncio.AbstractEventLoop
    peers: Peers
    """The other brokers."""
