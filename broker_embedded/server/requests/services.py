"""What handlers may ask their broker for, in pieces: the signature of a handler names the ones that it needs.

    def handle(ctx: RequestContext[HasMetadata], request: Message) -> Response:
        image = ctx.services.metadata.image

A handler that needs several names them once:

    class Needs(HasMetadata, HasReplicas, Protocol): ...

mypy refuses what a handler uses and does not name. `Services` is all of them: `server.broker` has it, and the
dispatcher hands it to every handler. Imported for types only.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.clock import Clock
from broker_embedded.common.faults import FaultHook
from broker_embedded.common.peers import Peers
from broker_embedded.controller.controller import Controller
from broker_embedded.controller.quorum import MetadataQuorum
from broker_embedded.coordinator.group.coordinator import GroupCoordinator
from broker_embedded.coordinator.share.coordinator import ShareCoordinator
from broker_embedded.coordinator.transaction.coordinator import TransactionCoordinator
from broker_embedded.metadata.cache import MetadataCache
from broker_embedded.quotas.mutations import MutationQuota
from broker_embedded.replication.fetch_session import FetchSessionCache
from broker_embedded.replication.replica_manager import ReplicaManager
from broker_embedded.security.authorizer import Rights
from broker_embedded.security.settings import Security
from broker_embedded.server.net.connection import ClientConnection
from broker_embedded.server.peers.producer_ids import ProducerIds
from broker_embedded.server.peers.topic_creation import TopicCreation
from broker_embedded.server.peers.unreachable_leaders import UnreachableLeaders
from broker_embedded.share.share_partitions import SharePartitions
from broker_embedded.storage.log_manager import LogManager


class HasNodeId(Protocol):
    @property
    def node_id(self) -> int: ...


class HasLoop(Protocol):
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...


class HasClock(Protocol):
    @property
    def clock(self) -> Clock:
        """The cluster's time, which a test may hold; what a client waits for passes by the loop's."""
        ...


class HasConfig(Protocol):
    @property
    def config(self) -> BrokerConfig:
        """The settings in force now, dynamic ones included."""
        ...


class HasStaticConfig(Protocol):
    """Arguments of the broker's start."""

    @property
    def static_config(self) -> BrokerConfig: ...

    @property
    def static_settings(self) -> frozenset[str]:
        """The names that were set when the broker was started."""
        ...

    @property
    def security(self) -> Security | None:
        """Return the listener's requirements of clients; None without security."""
        ...


class HasMetadata(Protocol):
    @property
    def metadata(self) -> MetadataCache: ...


class HasReplicas(Protocol):
    @property
    def replicas(self) -> ReplicaManager: ...


class HasFetchSessions(Protocol):
    @property
    def fetch_sessions(self) -> FetchSessionCache: ...


class HasLogs(Protocol):
    @property
    def logs(self) -> LogManager: ...


class HasShares(Protocol):
    @property
    def shares(self) -> SharePartitions:
        """The share partitions of the partitions that this broker leads."""
        ...

    @property
    def share_states(self) -> ShareCoordinator: ...


class HasGroups(Protocol):
    @property
    def groups(self) -> GroupCoordinator: ...


class HasTransactions(Protocol):
    @property
    def transactions(self) -> TransactionCoordinator: ...


class HasController(Protocol):
    @property
    def controller(self) -> Controller:
        """The controller of this node. It is the active one where a handler is served with `to_controller`."""
        ...


class HasQuorum(Protocol):
    @property
    def quorum(self) -> MetadataQuorum: ...


class HasPeers(Protocol):
    @property
    def peers(self) -> Peers: ...


class HasTopics(Protocol):
    @property
    def topics(self) -> TopicCreation: ...


class HasProducerIds(Protocol):
    @property
    def producer_ids(self) -> ProducerIds: ...


class HasUnreachableLeaders(Protocol):
    @property
    def unreachable_leaders(self) -> UnreachableLeaders: ...


class HasFaults(Protocol):
    @property
    def faults(self) -> FaultHook: ...


class HasUuids(Protocol):
    def new_uuid(self) -> bytes:
        """Return a random uuid, as 16 bytes."""
        ...


class Authorizes(Protocol):
    """The authorizer, as handlers see it."""

    def rights_of(self, connection: ClientConnection) -> Rights | None:
        """Return a client's rights; None for another broker, which is not authorized here."""
        ...


class HasAuthorization(Protocol):
    @property
    def authorization(self) -> Authorizes | None:
        """Return the authorization; None without an authorizer."""
        ...


class Quotas(Protocol):
    """The quotas of a broker's clients, as handlers see them. A client is a connection and a client id."""

    def fetched(self, connection: ClientConnection, client_id: str | None, size: int) -> int:
        """Count records of `size` bytes that are about to be sent. A result above 0 says that they must not be; never
        to a broker."""
        ...

    def leased(self, connection: ClientConnection, client_id: str | None, size: int) -> int:
        """Count records that are leased to the client and sent; the result is for how long it is throttled."""
        ...

    def fetchable(self, connection: ClientConnection, client_id: str | None, wanted: int) -> int:
        """Return how many of the requested bytes may be read."""
        ...

    def mutations(self, connection: ClientConnection, client_id: str | None, *, is_strict: bool) -> MutationQuota:
        """Return the quota for the client's topic changes."""
        ...


class HasQuotas(Protocol):
    @property
    def quotas(self) -> Quotas | None:
        """Return the quotas; None without any."""
        ...


class Services(
    HasNodeId,
    HasLoop,
    HasClock,
    HasConfig,
    HasStaticConfig,
    HasMetadata,
    HasReplicas,
    HasFetchSessions,
    HasLogs,
    HasGroups,
    HasShares,
    HasTransactions,
    HasController,
    HasQuorum,
    HasPeers,
    HasTopics,
    HasProducerIds,
    HasUnreachableLeaders,
    HasFaults,
    HasUuids,
    HasAuthorization,
    HasQuotas,
    Protocol,
):
    """Everything that a handler may ask for."""
