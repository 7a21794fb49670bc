"""The items of `ottla topics` documents, made of facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.admin import Admin, ClusterFacts, GroupLag, PartitionInfo, TopicInfo


def topic_detail(facts: ClusterFacts, fact: TopicInfo, settings: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the topic's own fields of `topics.show/1`. `settings` comes from `setting_items`."""
    return {
        "topic": fact.name,
        "id": fact.topic_id,
        "internal": fact.is_internal,
        "partitions": len(fact.partitions),
        "replicas": fact.replication_factor,
        "records": _sum(each.records for each in fact.partitions),
        "bytes": facts.topic_bytes(fact.name),
        "retention_bytes_limit": _limit(fact, settings),
        "problems": problems_of(fact.partitions),
    }


def problems_of(partitions: Sequence[PartitionInfo]) -> str | None:
    """Return the problems that the metadata of these partitions shows; None if there are none."""
    leaderless = behind = 0
    for each in partitions:  # once: a list of topics has tens of thousands
        leaderless += each.leader is None
        behind += len(each.in_sync) < len(each.replicas)
    parts = [f"{leaderless} without a leader"] if leaderless else []
    parts += [f"{behind} under-replicated"] if behind else []
    return ", ".join(parts) or None


def topic_item(
    facts: ClusterFacts, topic: TopicInfo, sort: str = "name", rates: dict[str, float] | None = None
) -> dict[str, Any]:
    """Return an item of `topics.list/1`, with the columns that a sort adds."""
    item: dict[str, Any] = {
        "topic": topic.name,
        "partitions": len(topic.partitions),
        "replicas": topic.replication_factor,
        "problems": problems_of(topic.partitions),
        "internal": topic.is_internal,
    }
    if sort == "records":
        item["records"] = _sum(each.records for each in topic.partitions)
    if sort in ("bytes", "rate"):
        item["bytes"] = facts.topic_bytes(topic.name)
    if rates is not None:
        rate = rates.get(topic.name)
        item["bytes_per_second"] = None if rate is None else round(rate)
    return item


def setting_items(admin: Admin, topic: str) -> dict[str, dict[str, Any]]:
    """Return all settings of a topic, each with its origin; empty if the user may not see them."""
    from ottla.wire_client.errors import BrokerRefused

    try:
        found = admin.topic_settings(topic)
    except BrokerRefused:  # who may describe a topic may not always describe its settings
        return {}
    return {
        name: {"value": each.value, "source": each.source, "sensitive": each.is_sensitive}
        for name, each in sorted(found.items())
    }


def group_items(lags: Iterable[GroupLag], topic: str) -> list[dict[str, Any]]:
    """Return an item of `topics.groups/1` for each of these groups that has committed offsets of the topic or has it
    assigned."""
    found = []
    for group in lags:
        mine = [each for each in group.partitions if each.topic == topic]
        if mine:
            lag = _sum(None if each.lag is None else max(0, each.lag) for each in mine if not each.is_gone)
            found.append({"group": group.group_id, "state": group.state, "lag": lag})
    return found


def partition_item(facts: ClusterFacts, topic: str, each: PartitionInfo) -> dict[str, Any]:
    """Return an item of `topics.partitions/1`."""
    from ottla.records import TopicPartition

    return {
        "partition": each.partition,
        "leader": each.leader,
        "replicas": list(each.replicas),
        "in_sync": list(each.in_sync),
        "first_offset": each.log_start,
        "end_offset": each.high_watermark,
        "bytes": facts.partition_bytes.get(TopicPartition(topic, each.partition)),
    }


def _limit(topic: TopicInfo, settings: dict[str, dict[str, Any]]) -> int | None:
    """Return the size that the topic may reach on all brokers together by retention.bytes, which limits one
    partition."""
    from ottla.admin.facts.cluster_facts import SettingInfo, whole_number

    given = settings.get("retention.bytes")
    each = None if given is None else whole_number(SettingInfo(value=given["value"], source=given["source"]))
    if each is None or each < 0:
        return None
    return each * sum(len(partition.replicas) for partition in topic.partitions)


def _sum(values: Any) -> int | None:
    """Return the sum, or None if one of the values is unknown."""
    found = list(values)
    return None if any(each is None for each in found) else sum(found)
