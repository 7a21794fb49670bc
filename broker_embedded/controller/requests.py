"""Requests to the controller and its results, without wire versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import IntEnum

from broker_embedded.common.errors import BrokerError
from broker_embedded.metadata.records import ResourceType
from ottla_wire.facts import fact

UNSET = -1


@fact
class NewTopic:
    """A topic to create. -1 takes the broker's default; `assignments` places the replicas by hand."""

    name: str
    partitions: int = UNSET
    replication_factor: int = UNSET
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


@fact
class TopicResult:
    """One topic that was created (or would be), or why not."""

    name: str
    error: BrokerError | None = None
    topic_id: bytes = bytes(16)
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@fact
class NewPartitions:
    """A topic to grow to `count` partitions; `assignments` has the replicas of each new partition, or is None."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


class ConfigOperation(IntEnum):
    """Operation of IncrementalAlterConfigs on one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@fact
class ConfigChange:
    """Changes to one resource's settings. `replaces_all` is AlterConfigs: settings not named return to their
    defaults.
    """

    resource_type: ResourceType
    resource_name: str
    operations: Sequence[tuple[str, ConfigOperation, str | None]]
    replaces_all: bool = False
