"""Records of the metadata log: changes of brokers, topics, partitions and settings.

They are facts that already hold, never requests: the controller checks a request, writes records, and everyone who
replays them in order reaches the same image. Names and meaning are those of Kafka's KRaft records (KIP-631); `serde`
gives them their bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING

from ottla_wire.facts import fact

if TYPE_CHECKING:
    from broker_embedded.metadata.acls import AclBinding  # few clusters have any


class ResourceType(IntEnum):
    """Type of a setting's resource, numbered as in DescribeConfigs."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ScramMechanism(IntEnum):
    """SCRAM with one of its hashes, numbered as AlterUserScramCredentials does (KIP-554)."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


class LeaderRecoveryState(IntEnum):
    """Whether the leader was elected from the in-sync replicas, or may lack their records (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


@fact
class SupportedFeature:
    """The levels of one feature that a broker can work with."""

    name: str
    min_level: int
    max_level: int


@fact
class RegisterBroker:
    """A broker joined (or joined again, with a higher epoch)."""

    broker_id: int
    incarnation_id: bytes
    broker_epoch: int
    host: str
    port: int
    rack: str | None = None
    log_dirs: tuple[bytes, ...] = ()
    features: tuple[SupportedFeature, ...] = ()
    fenced: bool = False
    in_controlled_shutdown: bool = False
    cordoned_log_dirs: tuple[bytes, ...] | None = None
    """Log directories without new replicas (KIP-1066); None until the broker has reported them."""


@fact
class UnregisterBroker:
    """A broker left for good."""

    broker_id: int
    broker_epoch: int


@fact
class BrokerRegistrationChange:
    """Changes of a registered broker; None is no change. A started shutdown is never taken back."""

    broker_id: int
    broker_epoch: int
    fenced: bool | None = None
    in_controlled_shutdown: bool = False
    log_dirs: tuple[bytes, ...] | None = None
    cordoned_log_dirs: tuple[bytes, ...] | None = None


@fact
class CreateTopic:
    """A topic exists from here on (KRaft's TopicRecord)."""

    name: str
    topic_id: bytes


@fact
class RemoveTopic:
    """A topic and all its partitions were deleted."""

    topic_id: bytes


@fact
class CreatePartition:
    """The whole state of one partition (KRaft's PartitionRecord)."""

    topic_id: bytes
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    directories: tuple[bytes, ...] = ()
    """The log directory of each replica, in the order of `replicas`; empty if none is known."""


@fact
class ChangePartition:
    """Changes of a partition; None means unchanged.

    A leader given, even the same one, raises the leader epoch.
    """

    topic_id: bytes
    partition: int
    isr: tuple[int, ...] | None = None
    leader: int | None = None
    replicas: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    leader_recovery_state: LeaderRecoveryState | None = None
    directories: tuple[bytes, ...] | None = None


@fact
class SetConfig:
    """A dynamic setting of a topic, a broker ("" is all brokers) or a group; None removes it."""

    resource_type: ResourceType
    resource_name: str
    name: str
    value: str | None


@fact
class ReserveProducerIds:
    """Producer ids below `next_producer_id` are handed out."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


@fact
class SetFeatureLevel:
    """A feature of the cluster was finalized at a level; 0 removes it."""

    name: str
    level: int


@fact
class UserScramCredential:
    """The stored credential of a user for one SCRAM mechanism (KIP-554)."""

    name: str
    mechanism: ScramMechanism
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@fact
class RemoveUserScramCredential:
    """A user can no longer authenticate by one SCRAM mechanism."""

    name: str
    mechanism: ScramMechanism


QuotaEntity = tuple[tuple[str, str | None], ...]
"""Entity of a quota: kind ("user", "client-id", "ip") and name, in the order of kinds; without a name: all others."""


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Return the entity of these parts, in whatever order they came."""
    return tuple(sorted(parts, key=lambda part: part[0]))


@fact
class SetClientQuota:
    """A client quota (KIP-546); None removes it."""

    entity: QuotaEntity
    key: str
    value: float | None


@fact
class AccessControlEntry:
    """An ACL that is valid from here on. Its id removes it."""

    acl_id: bytes
    acl: AclBinding


@fact
class RemoveAccessControlEntry:
    """An ACL no longer holds."""

    acl_id: bytes


MetadataRecord = (
    RegisterBroker
    | UnregisterBroker
    | BrokerRegistrationChange
    | CreateTopic
    | RemoveTopic
    | CreatePartition
    | ChangePartition
    | SetConfig
    | ReserveProducerIds
    | SetFeatureLevel
    | UserScramCredential
    | RemoveUserScramCredential
    | SetClientQuota
    | AccessControlEntry
    | RemoveAccessControlEntry
)
