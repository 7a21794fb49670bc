"""What is gone when topics are deleted: their records, bytes, and the groups that committed for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.admin import Admin, ClusterFacts


def read_doomed(admin: Admin, names: Sequence[str]) -> ClusterFacts:
    """Return the facts that `doomed_item` needs."""
    from ottla.admin import Part

    return admin.facts({Part.OFFSETS, Part.LOG_DIRS, Part.GROUPS, Part.GROUP_OFFSETS}, topics=names)


def doomed_item(facts: ClusterFacts, name: str) -> dict[str, Any]:
    """Return an item of `topics.delete/1`: a topic with all that is deleted with it."""
    fact = facts.by_topic[name]
    records = [each.records for each in fact.partitions]
    groups = [group.group_id for group in facts.groups if any(each.topic == name for each in group.offsets or ())]
    return {
        "topic": name,
        "partitions": len(fact.partitions),
        "records": None if None in records else sum(each or 0 for each in records),
        "bytes": facts.topic_bytes(name),
        "groups": groups,
    }
