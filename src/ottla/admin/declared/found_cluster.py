"""What a cluster has of what is declared, as far as a plan needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from ottla.admin.facts.cluster_facts import AclInfo, QuotaInfo, SettingInfo, TopicInfo
from ottla.admin.operations.scram_changes import ScramUser
from ottla_wire.facts import fact

OWN_SOURCES: Final = frozenset({"DYNAMIC_TOPIC_CONFIG", "DYNAMIC_GROUP_CONFIG"})
"""Kafka's names of what is set on the topic or group itself."""


@fact
class FoundCluster:
    """What was read. None is what was not asked for."""

    cluster_id: str
    at_ms: int
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    """All topics by name; with settings where they are declared, or were."""
    groups: Mapping[str, Mapping[str, SettingInfo]] = field(default_factory=dict)
    """Settings of the groups that are declared, or were, whether the group exists or not."""
    acls: tuple[AclInfo, ...] | None = None
    quotas: tuple[QuotaInfo, ...] | None = None
    users: tuple[ScramUser, ...] | None = None


def own_value(settings: Mapping[str, SettingInfo], name: str) -> str | None:
    """Return the value that is set on the topic or group itself, None where it is not."""
    found = settings.get(name)
    return found.value if found is not None and found.source in OWN_SOURCES else None
