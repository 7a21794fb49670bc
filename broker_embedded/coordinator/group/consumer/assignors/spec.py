"""Input of an assignor."""

from __future__ import annotations

from collections.abc import Mapping

from ottla_wire.facts import fact

from ..assignment import NOTHING, Assignment


@fact
class MemberSpec:
    instance_id: str | None = None
    topics: frozenset[bytes] = frozenset()
    """Ids of the topics that the member subscribes to and that exist."""
    current: Assignment = NOTHING
    """Its present target."""


@fact
class GroupSpec:
    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[bytes, int]
    """topic id -> number of partitions, for every subscribed topic."""
