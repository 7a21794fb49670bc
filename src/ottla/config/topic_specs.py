"""Topics that a service declares, to be created before it starts where they are missing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.errors import ConfigError
from ottla.showing import shown
from ottla.topics import topic_problem

ANSWER_S: Final = 30.0
"""How long a cluster may take to create topics."""

CLUSTERS_CHOICE: Final = -1
"""In a request for a topic: as many partitions, or replicas, as the cluster's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """How a topic is to be created. What is None is the cluster's own choice (num.partitions, KIP-464).

    `config` has Kafka's names of a topic's settings: ``{"retention.ms": 86_400_000}``.
    """

    partitions: int | None = None
    """How many partitions."""
    replication_factor: int | None = None
    """How many replicas each partition has."""
    config: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in (("partitions", self.partitions), ("replication_factor", self.replication_factor)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ConfigError(f"TopicSpec: {name} must be a whole number of at least 1, got {value!r}")

    @property
    def config_texts(self) -> dict[str, str]:
        """The settings as the protocol has them."""
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in self.config.items()
        }


CreateTopics = bool | Mapping[str, TopicSpec | int]
"""`True`: what the service reads, and its dead letter topics; or name → `TopicSpec`, or a number of partitions."""


def declared_topics(given: CreateTopics, *, used: Collection[str]) -> dict[str, TopicSpec]:
    """Return name → how to create it. `used`: the topics that the service reads or writes by itself."""
    if isinstance(given, bool):
        return dict.fromkeys(sorted(used), TopicSpec()) if given else {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"create_topics: found {shown(given)}, wanted True or {{'orders': 3}}")
    specs: dict[str, TopicSpec] = {}
    for name, spec in given.items():
        problem = topic_problem(name)
        if problem is not None:
            raise ConfigError(f"create_topics: {problem}")
        if not isinstance(spec, TopicSpec | int) or isinstance(spec, bool):
            raise ConfigError(
                f"create_topics: {name}: found {shown(spec)}, wanted a number of partitions or a TopicSpec"
            )
        specs[name] = TopicSpec(partitions=spec) if isinstance(spec, int) else spec
    return specs


def warn_of_other_partitions(declared: Mapping[str, TopicSpec], before: Mapping[str, int | None]) -> None:
    """Say which topics were there already with another number of partitions. Nothing changes it: keys would move."""
    from ottla.telemetry import log_event  # a command has no use for it, nor for `logging`

    for name, spec in declared.items():
        found = before.get(name)
        if found is not None and spec.partitions is not None and found != spec.partitions:
            fields = {"topic": name, "found_partitions": found, "declared_partitions": spec.partitions}
            log_event("topic_differs", "warning", fields)
