"""Offsets as Spark stores them: JSON of topics and partitions, always in the same order.

Spark compares offsets as text, so equal offsets must give equal JSON: topics by name, partitions by number. The format
is that of Spark's own Kafka connector, `{"orders": {"0": 17, "1": 4}}`, and beside it, under a name no topic can have,
the ids of the topics: a topic that was deleted and created anew has the same name and another id (KIP-516).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from ottla.errors import ConfigError
from ottla.records import TopicPartition

Offsets: TypeAlias = dict[TopicPartition, int]

TOPIC_IDS = "@topic-ids"


def to_json_dict(offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What Spark writes into its offset log."""
    body: dict[str, Any] = {}
    for partition in sorted(offsets):
        body.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    if topic_ids:
        body[TOPIC_IDS] = {name: topic_ids[name] for name in sorted(topic_ids)}
    return body


def from_json_dict(body: Mapping[str, Any] | None) -> tuple[Offsets, dict[str, str]]:
    """(offsets, topic ids) of what `to_json_dict` wrote, or Spark's own connector."""
    offsets: Offsets = {}
    for topic, partitions in (body or {}).items():
        if topic != TOPIC_IDS:
            offsets.update({TopicPartition(topic, int(number)): int(value) for number, value in partitions.items()})
    ids = dict((body or {}).get(TOPIC_IDS, {}))
    return offsets, ids


def parse_offsets_option(name: str, text: str) -> Offsets:
    """The JSON of `startingOffsets`, `endingOffsets` and the ByTimestamp options."""
    try:
        body = json.loads(text)
        return from_json_dict({topic: dict(partitions) for topic, partitions in body.items()})[0]
    except (ValueError, TypeError, AttributeError):
        raise ConfigError(f'{name}: found {text!r}, wanted JSON like {{"topic": {{"0": 23, "1": -2}}}}') from None


def parse_assign_option(text: str) -> list[TopicPartition]:
    """The JSON of `assign`."""
    try:
        body = json.loads(text)
        return sorted(TopicPartition(topic, int(number)) for topic, numbers in body.items() for number in numbers)
    except (ValueError, TypeError, AttributeError):
        raise ConfigError(f'assign: found {text!r}, wanted JSON like {{"topic": [0, 1]}}') from None
