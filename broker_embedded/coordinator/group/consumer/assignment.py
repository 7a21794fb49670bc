"""Partitions by topic id, as members own them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias


class TopicIdPartition(NamedTuple):
    topic_id: bytes
    partition: int


Assignment: TypeAlias = frozenset[TopicIdPartition]

NOTHING: Assignment = frozenset()


def by_topic(assignment: Iterable[TopicIdPartition]) -> dict[bytes, list[int]]:
    """Return topic id -> partitions, both in order."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(assignment):
        topics.setdefault(topic_id, []).append(partition)
    return topics


def of_topics(topics: Iterable[tuple[bytes, Iterable[int]]]) -> Assignment:
    return frozenset(TopicIdPartition(topic_id, partition) for topic_id, each in topics for partition in each)


def to_message(assignment: Iterable[TopicIdPartition]) -> list[dict[str, Any]]:
    """Return the TopicPartitions of requests, responses and records."""
    return [{"topic_id": topic_id, "partitions": each} for topic_id, each in by_topic(assignment).items()]


def of_message(topics: Iterable[Any]) -> Assignment:
    return of_topics((bytes(topic.topic_id), topic.partitions) for topic in topics)
