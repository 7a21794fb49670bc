"""Topics of a schedule: their specifications, and the command to run where creating them is not allowed."""

from __future__ import annotations

from typing import Final

from ottla.config.topic_specs import TopicSpec
from ottla.schedule.headers import DEAD_LETTERS_SUFFIX, TOPIC_CONFIG, TOPIC_PREFIX
from ottla.schedule.tasks import task_records
from ottla.schedule.wheel import WHEEL

_MOST_REPLICAS: Final = 3


def is_schedule(topic: str) -> bool:
    """Return whether this is the topic of a schedule."""
    return topic.startswith(TOPIC_PREFIX) and not topic.endswith(DEAD_LETTERS_SUFFIX)


def schedule_specs(topic: str, *, brokers: int, replication_factor: int | None = None) -> dict[str, TopicSpec]:
    """Return the specifications of the schedule's topic and its dead letter topic. `replication_factor` defaults to 3,
    at most the number of brokers.
    """
    replicas = _replicas(brokers, replication_factor)
    return {
        topic: TopicSpec(partitions=WHEEL.partitions, replication_factor=replicas, config=TOPIC_CONFIG),
        topic + DEAD_LETTERS_SUFFIX: TopicSpec(partitions=1, replication_factor=replicas),
    }


def tasks_spec(*, brokers: int) -> TopicSpec:
    """Return the specification of the topic of a schedule's recurring tasks."""
    return TopicSpec(partitions=1, replication_factor=_replicas(brokers, None), config=task_records.TOPIC_CONFIG)


def _replicas(brokers: int, given: int | None) -> int:
    return given or max(1, min(_MOST_REPLICAS, brokers))


def command_for(topic: str, servers: str) -> str:
    """Return the command that creates the topics of a schedule and delivers its messages."""
    return f"ottla schedule run --name {topic.removeprefix(TOPIC_PREFIX)} --bootstrap-servers {servers}"
