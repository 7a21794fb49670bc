"""Non-blocking retries: what is declared, and how the retry topics are called.

A record that fails is written to a retry topic of its group and handled from there after the delay, while its partition
continues. There is one topic per delay, so that the records of a topic fall due in the order of their writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.config.arguments import names_arguments
from ottla.errors import ConfigError
from ottla.quantities import Span, milliseconds_of, seconds
from ottla.showing import shown
from ottla.topics import topic_problem

_LONGEST_NAME: Final = 249


@names_arguments
@dataclass(frozen=True, slots=True, kw_only=True)
class RetryTopics:
    """One retry topic per delay: `<topic>.<group>.retry.1` for the first, and so on.

    `delays_s` is how long a record waits in each, in seconds or as timedeltas. After the last one it is a dead letter.
    A handler that asks for a delay of its own, `Retry(after_s=...)`, gets it in the next topic that waits as long; the
    longest one is the most.
    With `keep_key_order` the later records of a key are handled behind its failed one: they wait up to 5 s for it, and
    follow it through the retry topics if it takes longer; without, they go on at once. `create` makes missing topics
    when the app starts, with the partitions and the replication factor of the topic they belong to.
    """

    delays_s: tuple[Span, ...] = (10.0, 60.0, 600.0)
    keep_key_order: bool = True
    create: bool = True

    def __post_init__(self) -> None:
        given: object = self.delays_s
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise ConfigError(f"RetryTopics: delays_s must name one delay per retry topic, got {shown(given)}")
        object.__setattr__(self, "delays_s", tuple(given))
        if not self.delays_s:
            raise ConfigError("RetryTopics: delays_s must name one delay per retry topic, got none")
        for delay_s in self.delays_s:
            seconds("RetryTopics", "delays_s", delay_s)

    def names(self, topic: str, group: str) -> tuple[str, ...]:
        """Return the names of the retry topics of a topic, in the order in which a record goes through them."""
        return tuple(retry_topic_name(topic, group, number) for number in range(1, len(self.delays_s) + 1))

    def delay_ms(self, number: int) -> int:
        """Return the delay of retry topic `number` in milliseconds; 1 is the first."""
        return milliseconds_of(self.delays_s[number - 1])


def retry_topic_name(topic: str, group: str, number: int) -> str:
    """Return the name of a retry topic. It has the group in it: two groups must not get each other's retries. Raises
    `ConfigError` if it is too long for Kafka, or the group has characters that no topic may have."""
    name = f"{topic}.{group}.retry.{number}"
    if len(name) > _LONGEST_NAME:
        raise ConfigError(f"retry topic {name}: its name has {len(name)} characters, Kafka takes {_LONGEST_NAME}")
    if (problem := topic_problem(name)) is not None:
        raise ConfigError(f"retry topics have the name of their group, {shown(group)}, in theirs: {problem}")
    return name


class SharedTopicShape(NamedTuple):
    """The properties of a topic that its retry topics share."""

    partitions: int
    replication_factor: int


class MissingRetryTopics(NamedTuple):
    """The changes that are needed before a group can use its retry topics."""

    to_create: dict[str, SharedTopicShape]
    to_grow: dict[str, int]
    """Topic → the number of partitions it needs."""


def missing_topics(
    lines: Mapping[str, tuple[str, ...]], existing: Mapping[str, SharedTopicShape]
) -> MissingRetryTopics:
    """Compare the declared retry topics (by topic) with the topics of the cluster.

    A record keeps its partition number on its way, so a retry topic needs at least the partitions of its topic. A topic
    that does not exist itself is left out: subscribing to it raises the better error.
    """
    missing = MissingRetryTopics({}, {})
    for topic, retry_topics in lines.items():
        shape = existing.get(topic)
        if shape is None:
            continue
        for name in retry_topics:
            found = existing.get(name)
            if found is None:
                missing.to_create[name] = shape
            elif found.partitions < shape.partitions:
                missing.to_grow[name] = shape.partitions
    return missing
