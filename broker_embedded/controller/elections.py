"""Leader elections: when brokers start and stop, on request, and for balance.

Image in, records out. Who is alive is what the image says: a caller that fences a broker passes the image with that
broker fenced, so that no function here needs to know about exceptions to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import NO_LEADER, TopicPartition
from broker_embedded.controller.partition_change import Election, PartitionTarget, change_partition
from broker_embedded.metadata.image import ClusterImage, PartitionImage, TopicImage
from broker_embedded.metadata.records import ChangePartition, MetadataRecord, ResourceType
from ottla_wire.protocol import ErrorCode

UNCLEAN_SETTING = "unclean.leader.election.enable"
MAX_ELECTIONS_PER_BALANCING = 1000
"""As in Kafka: the rest follows in the next round, which starts at once."""

Selected = Callable[[PartitionImage], bool]


def allows_unclean(image: ClusterImage, topic: str, config: BrokerConfig) -> bool:
    """Return `unclean.leader.election.enable` of a topic: its own value, else the brokers' default."""
    for resource_type, name in ((ResourceType.TOPIC, topic), (ResourceType.BROKER, "")):
        value = image.config_overrides(resource_type, name).get(UNCLEAN_SETTING)
        if value is not None:
            return value.lower() == "true"
    return config.unclean_leader_election_enable


def remove_from_isr(image: ClusterImage, node: int, *, config: BrokerConfig) -> list[ChangePartition]:
    """Remove a broker from every ISR with another member, and from leadership."""

    def target(state: PartitionImage) -> PartitionTarget:
        return PartitionTarget(isr=tuple(member for member in state.isr if member != node))

    def concerned(state: PartitionImage) -> bool:
        return node in state.isr or state.leader == node

    return list(_changes(image, concerned, target, config=config))


def remove_failed_replicas(
    image: ClusterImage, node: int, failed: Collection[bytes], *, config: BrokerConfig
) -> list[MetadataRecord]:
    """Do the same as `remove_from_isr` for the broker's replicas in one of the `failed` log directories."""

    def target(state: PartitionImage) -> PartitionTarget:
        return PartitionTarget(isr=tuple(member for member in state.isr if member != node))

    def concerned(state: PartitionImage) -> bool:
        return node in state.isr and state.directory_of(node) in failed

    return list(_changes(image, concerned, target, config=config))


def elect_for_leaderless(image: ClusterImage, *, config: BrokerConfig) -> list[MetadataRecord]:
    """Elect a leader for each leaderless partition that can have one now."""
    return list(_changes(image, lambda state: not state.has_leader, lambda _: PartitionTarget(), config=config))


def leads_anything(image: ClusterImage, node: int) -> bool:
    return any(state.leader == node for topic in image.topics.values() for state in topic.partitions.values())


def _changes(
    image: ClusterImage,
    concerned: Selected,
    target: Callable[[PartitionImage], PartitionTarget],
    *,
    config: BrokerConfig,
) -> Iterator[ChangePartition]:
    for topic in image.topics.values():
        election: Election | None = None
        for state in topic.partitions.values():
            if not concerned(state):
                continue
            if election is None:
                election = usual_election(image, topic, config)
            change = change_partition(image, topic.topic_id, state, target(state), election=election)
            if change is not None:
                yield change


def usual_election(image: ClusterImage, topic: TopicImage, config: BrokerConfig) -> Election:
    """Return which election the controller may hold for this topic by itself."""
    return Election.UNCLEAN if allows_unclean(image, topic.name, config) else Election.ONLINE


# --- elections on request


def elect(image: ClusterImage, topic_partition: TopicPartition, election: Election) -> ChangePartition:
    """Return the record of one requested election. Raises BrokerError with the reason if there is none."""
    topic = image.topic(topic_partition.topic)
    state = None if topic is None else topic.partitions.get(topic_partition.partition)
    if topic is None or state is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic_partition}")
    wants_preferred = election is Election.PREFERRED
    is_needless = state.leader == state.replicas[0] if wants_preferred else state.has_leader
    if is_needless:
        raise BrokerError(ErrorCode.ELECTION_NOT_NEEDED, f"{topic_partition} is led by {state.leader} already")
    change = change_partition(image, topic.topic_id, state, election=election)
    if change is None or change.leader in (None, NO_LEADER):
        code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if wants_preferred else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        raise BrokerError(code, f"{topic_partition}: no replica that may lead is alive; ISR {list(state.isr)}")
    return change


def all_partitions(image: ClusterImage) -> Iterable[TopicPartition]:
    return [each for topic in image.topics.values() for each in topic.topic_partitions()]


# --- balance


def rebalance(image: ClusterImage, *, percentage: int) -> Sequence[MetadataRecord]:
    """Elect preferred leaders for brokers whose imbalance is too high.

    A broker's imbalance is the share of partitions that name it first but are led by another.
    """
    preferred: Counter[int] = Counter()
    astray: dict[int, list[tuple[TopicImage, PartitionImage]]] = {}
    for topic in image.topics.values():
        for state in topic.partitions.values():
            first = state.replicas[0]
            preferred[first] += 1
            if state.leader != first and image.is_active(first):
                astray.setdefault(first, []).append((topic, state))
    changes: list[MetadataRecord] = []
    for node, partitions in sorted(astray.items()):
        if len(partitions) * 100 <= percentage * preferred[node]:
            continue
        for topic, state in partitions:
            if len(changes) == MAX_ELECTIONS_PER_BALANCING:
                return changes
            change = change_partition(image, topic.topic_id, state, election=Election.PREFERRED)
            if change is not None:
                changes.append(change)
    return changes
