"""Counts the records of small lags that do not change: one offset may be the marker of a transaction for ever."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from ottla.admin.facts.lag import GroupLag, PartitionLag
from ottla.browse.group_items import next_unread
from ottla.browse.small_lags import is_small_lag, with_small_lags_counted
from ottla.errors import OttlaError
from ottla.wire_client.cluster.cluster_client import Cluster

_Key: TypeAlias = tuple[str, int, int, int | None]


class SmallLagCounts:
    """Reads each stretch of offsets once. What may not be read keeps its number of offsets."""

    def __init__(self, open_cluster: Callable[..., Cluster]) -> None:
        self._open_cluster = open_cluster
        self._counts: dict[_Key, int] = {}
        """Topic, partition, first uncommitted offset, end → records."""

    def counted(self, groups: Sequence[GroupLag], stands_still: Callable[[str, PartitionLag], bool]) -> list[GroupLag]:
        """Return the same lags, with records counted where `stands_still(group, partition)`."""
        wanted = {
            _key(each): each
            for group in groups
            for each in group.partitions
            if is_small_lag(each) and stands_still(group.group_id, each)
        }
        known = {key: count for key, count in self._counts.items() if key in wanted}
        missing = tuple(each for key, each in wanted.items() if key not in known)
        if missing:
            try:
                (found,) = with_small_lags_counted(
                    [GroupLag(group_id="", state="", partitions=missing)], self._open_cluster
                )
            except OttlaError:  # no broker answers: the next reading counts
                return list(groups)
            known |= {_key(each): count.lag or 0 for each, count in zip(missing, found.partitions, strict=True)}
        self._counts = known
        if not known:
            return list(groups)
        return [
            replace(
                group,
                partitions=tuple(
                    replace(each, lag=known[_key(each)])
                    if is_small_lag(each) and _key(each) in known and stands_still(group.group_id, each)
                    else each
                    for each in group.partitions
                ),
            )
            for group in groups
        ]


def _key(each: PartitionLag) -> _Key:
    return each.topic, each.partition, next_unread(each), each.log_end
