"""The items of `ottla groups` documents, made of facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.admin import GroupInfo, GroupLag, PartitionLag
    from ottla.wire_client.cluster.cluster_client import Cluster


def group_item(group: GroupInfo, behind: GroupLag | None, *, with_lag: bool) -> dict[str, Any]:
    """Return an item of `groups.list/1`."""
    item: dict[str, Any] = {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "coordinator": group.coordinator,
    }
    if with_lag:
        item["lag"] = None if behind is None else behind.total
        item["lag_at_least"] = None if behind is None else behind.at_least
        item["lost"] = None if behind is None else behind.lost
    return item


def group_detail(fact: GroupInfo, behind: GroupLag) -> dict[str, Any]:
    """Return what `groups.show/1` says of the group itself."""
    return {
        "group": fact.group_id,
        "type": fact.type,
        "state": fact.state,
        "coordinator": fact.coordinator,
        "assignor": fact.assignor or None,
        "members": len(fact.members or ()),
        "lag": behind.total,
        "lag_at_least": behind.at_least,
        "lost": behind.lost,
    }


def member_items(fact: GroupInfo) -> list[dict[str, Any]]:
    """Return an item of `groups.members/1` for each member."""
    return [
        {
            "member": member.member_id,
            "instance": member.instance_id,
            "client": member.client_id,
            "host": member.host,
            "partitions": [str(place) for place in member.partitions],
        }
        for member in fact.members or ()
    ]


def lag_item(each: PartitionLag) -> dict[str, Any]:
    """Return one partition in `groups.lag/1`, without the group."""
    return {
        "topic": each.topic,
        "partition": each.partition,
        "committed": each.committed,
        "first_offset": each.log_start,
        "end_offset": each.log_end,
        "lag": each.lag,
        "lost": each.lost,
        "held_at": each.held_at,
        "member": each.member,
        "client": each.client_id,
        "limited": each.is_limited,
        "problem": each.problem,
    }


def next_unread(each: PartitionLag) -> int:
    """Return the first offset that is unread."""
    return max(each.committed or 0, each.log_start or 0)


def lagging(found: Iterable[GroupLag]) -> list[tuple[str, int, int]]:
    """Return (topic, partition, `next_unread`) of each partition with unread records, sorted."""
    return sorted(
        {
            (each.topic, each.partition, next_unread(each))
            for group in found
            for each in group.partitions
            if each.lag is not None and each.lag > 0
        }
    )


def unread_since(
    behind: Iterable[tuple[str, int, int]],
    open_cluster: Callable[..., Cluster],
    *,
    on_read: Callable[[], object] = lambda: None,
) -> dict[tuple[str, int, int], int]:
    """Return the timestamp (ms) of the first unread record of each of these `lagging` partitions.

    One batch of each is read. `on_read` is called after each partition.
    """
    from ottla.records import TopicPartition
    from ottla.wire_client.fetching.record_chunks import read_chunk

    ages: dict[tuple[str, int, int], int] = {}
    with open_cluster(max_partition_fetch_bytes=1, fetch_max_bytes=1) as cluster:
        for topic, partition, offset in behind:
            chunk = read_chunk(cluster, TopicPartition(topic, partition), offset)
            if chunk.records:
                ages[topic, partition, offset] = chunk.records[0].timestamp_ms
            on_read()
    return ages
