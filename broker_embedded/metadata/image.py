"""State of brokers, topics, partitions and settings at one offset of the metadata log.

An image is never changed. `MetadataDelta.apply()` makes the next one and shares what did not change, so that a reader
may keep the image it started with for as long as it likes, and comparing two of them is cheap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from broker_embedded.common.types import NO_LEADER, TopicPartition
from broker_embedded.metadata.records import (
    LeaderRecoveryState,
    QuotaEntity,
    ResourceType,
    ScramMechanism,
    SupportedFeature,
    UserScramCredential,
)
from ottla_wire.facts import fact

if TYPE_CHECKING:
    from broker_embedded.metadata.acls import AclBinding
    from ottla_wire.protocol.message import Message

UNASSIGNED_DIRECTORY = bytes(16)
"""The replica's log directory is unknown: its broker has only one, or has not reported it yet."""
LOST_DIRECTORY = bytes(15) + b"\x01"
"""The replica's log directory is lost. It has no records until it is in sync again."""


@fact
class BrokerImage:
    """One registered broker. A fenced one serves no client and leads nothing."""

    broker_id: int
    epoch: int
    incarnation_id: bytes
    host: str
    port: int
    rack: str | None = None
    log_dirs: tuple[bytes, ...] = ()
    features: tuple[SupportedFeature, ...] = ()
    fenced: bool = False
    in_controlled_shutdown: bool = False
    cordoned_log_dirs: tuple[bytes, ...] = ()

    @property
    def takes_replicas(self) -> bool:
        """Return whether a new replica may be placed here: not if all its log directories are cordoned (KIP-1066)."""
        return not self.log_dirs or any(each not in self.cordoned_log_dirs for each in self.log_dirs)

    @property
    def is_active(self) -> bool:
        """Return whether it may lead, and may be added to an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    def has_directory(self, directory: bytes) -> bool:
        """Return whether a replica in this directory can be served. An unknown directory counts as present."""
        if directory == LOST_DIRECTORY:
            return False
        return directory == UNASSIGNED_DIRECTORY or not self.log_dirs or directory in self.log_dirs


@fact
class PartitionImage:
    """Replicas, ISR, leader and leader epoch of a partition."""

    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    directories: tuple[bytes, ...] = ()
    """The log directory of each replica, in the order of `replicas`; empty if none is known."""

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    def directory_of(self, node: int) -> bytes:
        """Return the log directory of a broker's replica; UNASSIGNED_DIRECTORY if unknown."""
        if not self.directories or node not in self.replicas:
            return UNASSIGNED_DIRECTORY
        return self.directories[self.replicas.index(node)]


@fact
class TopicImage:
    """A topic: partitions are numbered from 0 without gaps."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionImage] = field(default_factory=dict)

    def topic_partitions(self) -> Iterator[TopicPartition]:
        return (TopicPartition(self.name, number) for number in self.partitions)


ConfigKey = tuple[ResourceType, str]
ScramKey = tuple[str, ScramMechanism]
"""User and mechanism."""


@fact
class ClusterImage:
    """Everything that the metadata log says up to and including `offset`."""

    cluster_id: str
    offset: int = -1
    epoch: int = 0
    controller_id: int = -1
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[bytes, str] = field(default_factory=dict)
    leader_counts: Mapping[int, int] = field(default_factory=dict)
    """How many partitions each broker leads: counted along, as a new topic's leaders are placed by it."""
    configs: Mapping[ConfigKey, Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    scram_credentials: Mapping[ScramKey, UserScramCredential] = field(default_factory=dict)
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    acls: Mapping[bytes, AclBinding] = field(default_factory=dict)
    """By id."""

    def topic(self, name: str) -> TopicImage | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics.get(name)

    def name_in(self, topic: Message) -> str | None:
        """Return the name of a topic of a request, which has it by name or, in later versions, by id. None for an id
        that no topic has."""
        return topic.name if "name" in topic.FIELDS else self.topic_names.get(topic.topic_id)

    def partition(self, topic_partition: TopicPartition) -> PartitionImage | None:
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def config_overrides(self, resource_type: ResourceType, name: str) -> Mapping[str, str]:
        """Return the dynamic settings of one resource; empty without any."""
        return self.configs.get((resource_type, name), {})

    def live_brokers(self) -> list[BrokerImage]:
        """Return the live brokers in the order of their ids."""
        return [broker for _, broker in sorted(self.brokers.items()) if not broker.fenced]

    def is_active(self, node: int) -> bool:
        """Return whether a broker may lead: registered, not fenced, not shutting down."""
        broker = self.brokers.get(node)
        return broker is not None and broker.is_active

    def offline_replicas(self, state: PartitionImage) -> list[int]:
        """Return the unavailable replicas of a partition, as Metadata lists them."""
        return [node for node in state.replicas if not self._serves(node, state)]

    def _serves(self, node: int, state: PartitionImage) -> bool:
        broker = self.brokers.get(node)
        return broker is not None and not broker.fenced and broker.has_directory(state.directory_of(node))


def newest(images: Iterable[ClusterImage]) -> ClusterImage:
    """Return the image of the node that has replayed most of the metadata log; an empty one without nodes."""
    return max(images, key=lambda image: image.offset, default=ClusterImage(cluster_id=""))
