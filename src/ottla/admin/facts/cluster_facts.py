"""What is known of a cluster at one moment: frozen, without a connection, and the same whether it was read or loaded.

Everything that looks at a cluster (commands, the doctor) looks at these. `parts` says what was asked for, and
`not_read` which of it could not be read and why: a fact that is missing is never a fact that is fine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ForwardRef, TypeAlias

from ottla.topics import TopicPartition
from ottla_wire.facts import fact

if TYPE_CHECKING:
    from collections.abc import Iterator

    Int64: TypeAlias = int
else:  # resolved by whatever reads a file: what asks a cluster has no use for msgspec
    Int64 = ForwardRef("_bounded_integer()", module=__name__)
"""Kafka has no larger numbers, and neither may a file have them."""


def _bounded_integer() -> Any:
    import msgspec

    return Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Part(StrEnum):
    """One thing that can be read of a cluster; each costs requests, so only those that are wanted are asked for."""

    TOPICS = "topics"
    """Partitions, leaders, replicas, in-sync replicas."""
    TOPIC_SETTINGS = "topic_settings"
    """The settings of each topic, with where each value comes from."""
    BROKER_SETTINGS = "broker_settings"
    """The settings of each broker, with where each value comes from."""
    OFFSETS = "offsets"
    """First offset, high watermark and last stable offset of each partition."""
    NEWEST_TIMESTAMPS = "newest_timestamps"
    """The newest record timestamp of each partition, and its offset."""
    EXPIRY = "expiry"
    """Which offsets retention takes within an hour and a day, of partitions whose groups lag."""
    LAST_HOUR = "last_hour"
    """Start offsets of the last hour, in topics whose names look like dead letter topics."""
    LOG_DIRS = "log_dirs"
    """The log directories of each broker, with their replicas and free bytes."""
    REACHED = "reached"
    """Whether each broker answers at the address it advertises, and of which cluster it is."""
    GROUPS = "groups"
    """Which groups there are, of which type and in which state."""
    GROUP_MEMBERS = "group_members"
    """The members of each group, and what is assigned to them."""
    GROUP_OFFSETS = "group_offsets"
    """Committed offsets of each group."""
    GROUP_SETTINGS = "group_settings"
    """Settings of each share group, with where each value comes from."""
    COMMIT_TIMES = "commit_times"
    """Since when the offsets of empty groups are kept. The records of `__consumer_offsets` are read."""
    TRANSACTIONS = "transactions"
    """The transactions that each coordinator knows."""
    MOVES = "moves"
    """Reassignments under way."""
    QUORUM = "quorum"
    """The voters and observers of the metadata quorum (KRaft)."""
    FEATURES = "features"
    """Which feature levels brokers support, and which are finalized (`metadata.version` and others)."""
    ACLS = "acls"
    """All ACLs."""
    QUOTAS = "quotas"
    """All quotas of users, clients and addresses."""
    SCHEDULES = "schedules"
    """How many delayed messages wait in schedules that no scheduler serves. The records of those are read."""


@fact
class NotRead:
    """A requested part of the facts that could not be read. `subject` names the broker, topic or group."""

    part: Part
    """The requested part."""
    subject: str
    reason: str
    """Why it was not read, as a sentence."""

    @property
    def why(self) -> str:
        """The reason without the subject, for where that is named beside it."""
        return self.reason.removeprefix(f"{self.subject}: ")

    @property
    def is_denied(self) -> bool:
        """True if the reader lacks a right: a later read fails in the same way."""
        return "AUTHORIZATION_FAILED" in self.reason or "DESCRIBE on the cluster is needed" in self.reason


@fact
class SettingInfo:
    """A setting as a broker reports it. `source` is Kafka's name of its origin. `value` is None if Kafka does not
    return it (a password) or it has none."""

    value: str | None
    source: str
    is_read_only: bool = False
    """True where the setting can change only with a restart."""
    is_sensitive: bool = False
    """True for passwords and keys: Kafka does not return their value."""

    @property
    def is_default(self) -> bool:
        """Return whether the value is Kafka's own default."""
        return self.source == "DEFAULT_CONFIG"


@fact
class ReplicaInfo:
    """One replica in a log directory. `is_future`: a copy that is being moved here from another directory."""

    topic: str
    partition: Int64
    bytes: Int64
    offset_lag: Int64
    is_future: bool = False


@fact
class LogDirInfo:
    """A log directory of a broker. Totals describe its disk, so directories on one disk report the same totals."""

    path: str
    error: str | None = None
    total_bytes: Int64 | None = None
    usable_bytes: Int64 | None = None
    is_cordoned: bool = False
    replicas: tuple[ReplicaInfo, ...] = ()

    @property
    def replica_bytes(self) -> int:
        return sum(replica.bytes for replica in self.replicas)


@fact
class BrokerInfo:
    """A registered broker. `answers_as` is the id of the cluster that responds at its address, `unreachable` the error
    of a failed connection; both are None if no connection was tried."""

    id: Int64
    """The broker's `node.id`."""
    host: str
    port: Int64
    rack: str | None = None
    is_fenced: bool = False
    """True while the controller counts it out, because it sends no heartbeats or has not caught up since its start: it
    leads nothing. A cluster before Kafka 4 does not list such brokers."""
    answers_as: str | None = None
    unreachable: str | None = None
    settings: Mapping[str, SettingInfo] = field(default_factory=dict)
    """Its settings by name; empty where they were not asked for."""
    log_dirs: tuple[LogDirInfo, ...] | None = None
    """Its log directories; None where they were not read."""
    features: Mapping[str, tuple[Int64, Int64]] = field(default_factory=dict)
    """Name → (lowest, highest) level that it supports."""


@fact
class PartitionInfo:
    """One partition. `replicas[0]` is the preferred leader; `leader` is None while there is none.

    `log_start`, `high_watermark` and `last_stable_offset` are offsets, the last two exclusive.
    """

    partition: Int64
    leader: Int64 | None
    leader_epoch: Int64
    replicas: tuple[Int64, ...]
    """Ids of the brokers that hold it, the preferred leader first."""
    in_sync: tuple[Int64, ...]
    """Ids of the brokers that are in sync (the ISR)."""
    offline: tuple[Int64, ...] = ()
    """Ids of the replicas whose broker or log directory is down."""
    log_start: Int64 | None = None
    high_watermark: Int64 | None = None
    last_stable_offset: Int64 | None = None
    newest_timestamp_ms: Int64 | None = None
    """The largest record timestamp, in milliseconds since the epoch."""
    newest_timestamp_offset: Int64 | None = None
    """The offset of the record with the largest timestamp."""
    expires_within_hour: Int64 | None = None
    """Records before this offset are at the end of their retention within an hour."""
    expires_within_day: Int64 | None = None
    """Records before this offset are at the end of their retention within a day."""
    hour_ago_offset: Int64 | None = None
    """The offset of the first record of the last hour; the high watermark if there is none."""

    @property
    def records(self) -> int | None:
        """An upper bound of the records in it: offsets may have gaps."""
        if self.log_start is None or self.high_watermark is None:
            return None
        return self.high_watermark - self.log_start


@fact
class TopicInfo:
    """A topic with its partitions in their order. `settings` are those that were asked for, whatever their source."""

    name: str
    """The topic's name."""
    topic_id: str | None
    is_internal: bool
    """True for Kafka's own topics, as `__consumer_offsets`."""
    partitions: tuple[PartitionInfo, ...]
    """Ordered by their numbers."""
    settings: Mapping[str, SettingInfo] = field(default_factory=dict)
    waiting: Int64 | None = None
    """Number of waiting delayed messages of a schedule without a scheduler; None if they were not read."""

    @property
    def replication_factor(self) -> int:
        """The smallest number of replicas that one of its partitions has."""
        return min([len(partition.replicas) for partition in self.partitions], default=0)

    def number(self, setting: str) -> int | None:
        """Return a setting as a whole number; None if it is unknown or not a number."""
        return whole_number(self.settings.get(setting))


@fact
class MemberInfo:
    """A member of a group, with what is assigned to it."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...] = ()
    subscribed: tuple[str, ...] = ()


@fact
class CommittedOffset:
    """What a group has committed for a partition: the offset of the next record it wants. Of a share group it is the
    start offset that its broker wrote last: all records before it are settled, and some behind it may be."""

    topic: str
    partition: Int64
    offset: Int64
    metadata: str = ""
    kept_since_ms: Int64 | None = None
    """From when offsets.retention.minutes counts, for an empty group; None where it was not read."""
    unsettled: Int64 | None = None
    """How many records a share group has yet to settle, as its broker counts (KIP-1226); None where it did not."""


@fact
class GroupInfo:
    """A group. `type` is Classic, Consumer or Share, `state` is Kafka's name of it. `members` and `offsets` are None if
    they were not requested or could not be read."""

    group_id: str
    type: str
    state: str
    coordinator: Int64
    """The id of the broker that coordinates it."""
    protocol_type: str = "consumer"
    """`consumer` for groups of consumers; other clients, as Kafka Connect, have their own."""
    assignor: str = ""
    """The name of the assignor in use; empty while the group has none."""
    members: tuple[MemberInfo, ...] | None = None
    offsets: tuple[CommittedOffset, ...] | None = None
    settings: Mapping[str, SettingInfo] | None = None
    """Of a share group; None as `members`."""

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """The committed offset of each partition."""
        return {TopicPartition(each.topic, each.partition): each.offset for each in self.offsets or ()}


@fact
class TransactionInfo:
    """A transaction of a coordinator. `started_ms` is None while none is open."""

    transactional_id: str
    producer_id: Int64
    state: str
    timeout_ms: Int64
    started_ms: Int64 | None
    partitions: tuple[TopicPartition, ...] = ()


@fact
class MoveInfo:
    """A reassignment under way."""

    topic: str
    partition: Int64
    replicas: tuple[Int64, ...]
    adding: tuple[Int64, ...]
    removing: tuple[Int64, ...]


@fact
class VoterInfo:
    """A voter or observer of the metadata quorum. Times are milliseconds since the epoch, None if unknown."""

    node_id: Int64
    is_voter: bool
    log_end_offset: Int64
    caught_up_ms: Int64 | None = None


@fact
class QuorumInfo:
    """The metadata quorum (KRaft)."""

    leader: Int64
    leader_epoch: Int64
    high_watermark: Int64
    nodes: tuple[VoterInfo, ...]

    @property
    def voters(self) -> tuple[VoterInfo, ...]:
        return tuple(node for node in self.nodes if node.is_voter)


@fact
class AclInfo:
    """One ACL, in Kafka's words."""

    resource: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str


@fact
class QuotaInfo:
    """One quota. `entity` is a name for each kind (`user`, `client-id`, `ip`); None is all without one of their own."""

    entity: Mapping[str, str | None]
    name: str
    value: float


@fact
class ClusterFacts:
    """A cluster as it was read at `at_ms` (milliseconds since the epoch, by the reader's clock)."""

    at_ms: Int64
    cluster_id: str
    controller_id: Int64 | None
    """The active controller's node id; None while there is none."""
    parts: tuple[Part, ...]
    """The requested parts."""
    brokers: tuple[BrokerInfo, ...]
    """All registered brokers."""
    topics: tuple[TopicInfo, ...] = ()
    """The topics, ordered by name."""
    groups: tuple[GroupInfo, ...] = ()
    """The groups, ordered by name."""
    transactions: tuple[TransactionInfo, ...] = ()
    """The transactions, of all coordinators."""
    moves: tuple[MoveInfo, ...] = ()
    """The reassignments under way."""
    quorum: QuorumInfo | None = None
    """The metadata quorum; None where it was not read."""
    finalized_features: Mapping[str, Int64] = field(default_factory=dict)
    """Name → finalized level."""
    acls: tuple[AclInfo, ...] | None = None
    """All ACLs; None where they were not read."""
    quotas: tuple[QuotaInfo, ...] | None = None
    """All quotas; None where they were not read."""
    not_read: tuple[NotRead, ...] = ()
    """Requested parts that could not be read, with the reason."""

    @cached_property
    def by_topic(self) -> Mapping[str, TopicInfo]:
        """Topics by their name."""
        return {topic.name: topic for topic in self.topics}

    @cached_property
    def by_partition(self) -> Mapping[TopicPartition, PartitionInfo]:
        """Partitions by topic and number."""
        return {TopicPartition(topic.name, each.partition): each for topic in self.topics for each in topic.partitions}

    @cached_property
    def broker_ids(self) -> frozenset[int]:
        """The brokers that are registered."""
        return frozenset(broker.id for broker in self.brokers)

    @cached_property
    def partition_bytes(self) -> Mapping[TopicPartition, int]:
        """The size of each partition: the size of its largest replica, because a lagging replica will grow to it."""
        found: dict[TopicPartition, int] = {}
        for _, _, replica in self.replicas():
            place = TopicPartition(replica.topic, replica.partition)
            found[place] = max(found.get(place, 0), replica.bytes)
        return found

    def replicas(self) -> Iterator[tuple[BrokerInfo, LogDirInfo, ReplicaInfo]]:
        """Yield every replica with where it is, as far as directories were read. Copies still being moved are left
        out."""
        for broker in self.brokers:
            for log_dir in broker.log_dirs or ():
                for replica in log_dir.replicas:
                    if not replica.is_future:
                        yield broker, log_dir, replica

    def topic_bytes(self, name: str) -> int | None:
        """Return the bytes of all replicas of a topic; None where no log directory was read."""
        if all(broker.log_dirs is None for broker in self.brokers):
            return None
        return self._bytes_by_topic.get(name, 0)

    @cached_property
    def _bytes_by_topic(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for _, _, replica in self.replicas():
            found[replica.topic] = found.get(replica.topic, 0) + replica.bytes
        return found


def whole_number(setting: SettingInfo | None) -> int | None:
    """Return the value of a setting as a number, or None if the broker's text is no number."""
    if setting is None or setting.value is None or len(setting.value) > 20:
        return None
    try:
        return int(setting.value)
    except ValueError:
        return None


def is_true(setting: SettingInfo | None) -> bool:
    """Return whether a boolean setting is known and true."""
    return setting is not None and setting.value == "true"
