"""The records of a KIP-848 group in the log, as Apache Kafka writes them; see `member_records`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from ottla_wire.facts import fact

from ..member_records import MemberRecord, RecordKind, RecordKinds, member_kinds


class SubscribedTopicMetadata(NamedTuple):
    """Metadata that the target assignment was computed from; a change causes a new one."""

    topic_id: bytes
    partition_count: int


class ResolvedRegex(NamedTuple):
    """The topics that a pattern matches, as of the metadata at `version`."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@fact
class PartitionMetadata:
    topics: Mapping[str, SubscribedTopicMetadata] | None


@fact
class Regex:
    pattern: str
    resolved: ResolvedRegex | None


ConsumerRecord: TypeAlias = MemberRecord | PartitionMetadata | Regex

RECORDS: RecordKinds[ConsumerRecord] = RecordKinds(
    *member_kinds("ConsumerGroup", group=3, member=5, target_epoch=6, target=7, current=8),
    RecordKind(
        4,
        "ConsumerGroupPartitionMetadata",
        PartitionMetadata,
        "topics",
        lambda record: {
            "topics": [
                {
                    "topic_id": topic.topic_id,
                    "topic_name": name,
                    "num_partitions": topic.partition_count,
                    "partition_metadata": [],
                }
                for name, topic in record.topics.items()
            ]
        },
        lambda value: {
            "topics": {
                topic.topic_name: SubscribedTopicMetadata(bytes(topic.topic_id), topic.num_partitions)
                for topic in value.topics
            }
        },
    ),
    RecordKind(
        16,
        "ConsumerGroupRegularExpression",
        Regex,
        "resolved",
        lambda record: {
            "topics": sorted(record.resolved.topics),
            "version": record.resolved.version,
            "timestamp": record.resolved.timestamp_ms,
        },
        lambda value: {"resolved": ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)},
        {"pattern": "regular_expression"},
    ),
)
