"""Group epochs and targets: changed topics, patterns, and the target assignment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from broker_embedded.metadata.image import ClusterImage

from ..member_records import GroupEpoch
from .assignment import NOTHING
from .assignors import GroupSpec, MemberSpec
from .group import ConsumerGroup
from .member import MemberSubscription
from .records import ConsumerRecord, PartitionMetadata, Regex, ResolvedRegex, SubscribedTopicMetadata
from .topic_pattern import SubscriptionPattern


def group_changes(group: ConsumerGroup, *, image: ClusterImage, force: bool) -> Iterator[ConsumerRecord]:
    """Return a new group epoch if `force`, or if the subscribed topics changed."""
    if not force and group.checked_image is image:
        return
    topics = subscribed_topics(group, image)
    has_changed = topics != group.topics
    group.checked_image = image
    if has_changed:
        yield PartitionMetadata(topics=topics)
    if has_changed or force:
        yield GroupEpoch(epoch=group.epoch + 1)


def subscribed_topics(group: ConsumerGroup, image: ClusterImage) -> dict[str, SubscribedTopicMetadata]:
    """Return the topics that members subscribe to and that exist."""
    names: set[str] = set()
    for member in group.members.values():
        names.update(group.topics_of(member.subscription))
    topics = {}
    for name in sorted(names):
        topic = image.topic(name)
        if topic is not None:
            topics[name] = SubscribedTopicMetadata(topic.topic_id, len(topic.partitions))
    return topics


def regex_changes(
    group: ConsumerGroup,
    subscription: MemberSubscription,
    *,
    image: ClusterImage,
    wall_ms: int,
    may_describe: Callable[[str], bool] | None = None,
) -> list[Regex]:
    """Return new, changed and unused patterns. Raises BrokerError for an invalid one.

    As in Apache Kafka, a pattern must match the whole name and may match internal topics, but none that the member who
    asks may not describe. See `topic_pattern` for the syntax.
    """
    patterns = {member.subscription.topic_regex for member in group.members.values()} | {subscription.topic_regex}
    patterns.discard(None)
    if not patterns and not group.regexes:
        return []
    is_new_image = group.checked_image is not image
    changes = []
    for pattern in sorted(pattern for pattern in patterns if pattern is not None):
        known = group.regexes.get(pattern)
        if known is not None and not is_new_image:
            continue
        topics = matching_topics(pattern, image.topics)
        if may_describe is not None:
            topics = frozenset(filter(may_describe, topics))
        if known is None or known.topics != topics:
            resolved = ResolvedRegex(topics, version=image.offset, timestamp_ms=wall_ms)
            changes.append(Regex(pattern=pattern, resolved=resolved))
    return changes


def unused_regexes(group: ConsumerGroup) -> list[Regex]:
    """Return the patterns that no member subscribes to any more."""
    used = {member.subscription.topic_regex for member in group.members.values()}
    return [Regex(pattern=pattern, resolved=None) for pattern in group.regexes if pattern not in used]


def matching_topics(pattern: str, names: Iterable[str]) -> frozenset[str]:
    compiled = SubscriptionPattern(pattern)
    return frozenset(name for name in names if compiled.matches(name))


def spec_of(group: ConsumerGroup) -> GroupSpec:
    members = {}
    for member_id, member in group.members.items():
        names = group.topics_of(member.subscription)
        members[member_id] = MemberSpec(
            instance_id=member.subscription.instance_id,
            topics=frozenset(topic.topic_id for name, topic in group.topics.items() if name in names),
            current=group.targets.get(member_id, NOTHING),
        )
    counts = {topic.topic_id: topic.partition_count for topic in group.topics.values()}
    return GroupSpec(members=members, partition_counts=counts)
