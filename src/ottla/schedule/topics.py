"""The topics of a schedule: how whoever needs them first creates them, and what to run where it may not."""

from __future__ import annotations

from typing import Final

from ottla.config.topic_specs import TopicSpec
from ottla.schedule.headers import DEAD_LETTERS_SUFFIX, TOPIC_CONFIG, TOPIC_PREFIX
from ottla.schedule.wheel import WHEEL

__all__ = ["command_for", "is_schedule", "schedule_specs"]

_MOST_REPLICAS: Final = 3


def is_schedule(topic: str) -> bool:
    """Whether this is the topic that the messages of a schedule wait in."""
    return topic.startswith(TOPIC_PREFIX) and not topic.endswith(DEAD_LETTERS_SUFFIX)


def schedule_specs(topic: str, *, brokers: int, replication_factor: int | None = None) -> dict[str, TopicSpec]:
    """The schedule's topic and that of its dead letters, with as many replicas as were asked for: 3 if nobody did, or
    as many as there are brokers."""
    replicas = replication_factor or max(1, min(_MOST_REPLICAS, brokers))
    return {
        topic: TopicSpec(partitions=WHEEL.partitions, replication_factor=replicas, config=TOPIC_CONFIG),
        topic + DEAD_LETTERS_SUFFIX: TopicSpec(partitions=1, replication_factor=replicas),
    }


def command_for(topic: str, servers: str) -> str:
    """The command that creates the topics of a schedule, and delivers what waits in them."""
    return f"ottla scheduler run --name {topic.removeprefix(TOPIC_PREFIX)} --bootstrap-servers {servers}"
