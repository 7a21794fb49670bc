"""When groups committed, and since when they are empty: only the records of `__consumer_offsets` say it.

No API has these times, and Kafka lets offsets of an empty group expire by them. So this is the one part of the facts
for which records are read, and only where it is asked for (`Part.COMMIT_TIMES`).
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from dataclasses import replace
from typing import Final

from ottla.admin.facts.cluster_facts import ClusterFacts, CommittedOffset, GroupInfo, NotRead, Part
from ottla.errors import OttlaError
from ottla.topics import TopicPartition
from ottla.wire_client.client_settings import WireSettings
from ottla.wire_client.cluster.cluster_client import EARLIEST, LATEST, Cluster
from ottla.wire_client.fetching.range_reading import batches_of_ranges
from ottla.wire_client.fetching.record_rows import rows_of
from ottla.wire_client.ranges import OffsetRange, OnDataLoss
from ottla_wire.protocol import ProtocolError, codec

OFFSETS_TOPIC: Final = "__consumer_offsets"
_OFFSET_KEYS: Final = (0, 1)
_GROUP_KEY: Final = 2


class CommitTimes:
    """Commits of some groups read from records; a later record replaces an earlier one, as in a compacted log. Pure."""

    def __init__(self, groups: Collection[str]) -> None:
        self._groups = frozenset(groups)
        self._committed_ms: dict[tuple[str, str, int], int] = {}
        self._state_since_ms: dict[str, int] = {}
        self.unreadable = 0
        """Records that are none that Kafka writes."""

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Take the next record of a partition."""
        try:
            self._take(key or b"", value)
        except (ProtocolError, UnicodeDecodeError):
            self.unreadable += 1

    def of(self, group: GroupInfo) -> GroupInfo:
        """Return the group with the times of its offsets."""
        return replace(
            group, offsets=None if group.offsets is None else tuple(self._dated(group, each) for each in group.offsets)
        )

    def _dated(self, group: GroupInfo, committed: CommittedOffset) -> CommittedOffset:
        at_ms = self._committed_ms.get((group.group_id, committed.topic, committed.partition))
        empty_since_ms = self._state_since_ms.get(group.group_id)
        # KIP-211: a classic group's offsets are kept from when it became empty, others from when they were committed.
        counts_from_empty = group.type == "Classic" and bool(group.protocol_type) and empty_since_ms is not None
        return replace(committed, kept_since_ms=empty_since_ms if counts_from_empty else at_ms)

    def _take(self, key: bytes, value: bytes | None) -> None:
        kind = codec.record_version(key)
        if kind in _OFFSET_KEYS:
            _, name = codec.decode_record_value("OffsetCommitKey", key)
            if name.group not in self._groups:
                return
            place = (name.group, name.topic, name.partition)
            if value is None:
                self._committed_ms.pop(place, None)
            else:
                self._committed_ms[place] = codec.decode_record_value("OffsetCommitValue", value)[1].commit_timestamp
        elif kind == _GROUP_KEY:
            group = codec.decode_record_value("GroupMetadataKey", key)[1].group
            if group not in self._groups:
                return
            state = None if value is None else codec.decode_record_value("GroupMetadataValue", value)[1]
            if state is None or state.current_state_timestamp < 0 or not state.protocol_type:
                self._state_since_ms.pop(group, None)
            else:
                self._state_since_ms[group] = state.current_state_timestamp


def with_commit_times(facts: ClusterFacts, settings: WireSettings) -> ClusterFacts:
    """Return the facts, with times of what empty groups have committed. What cannot be read is in `not_read`."""
    empty = [group.group_id for group in facts.groups if group.state == "Empty" and group.offsets]
    times = CommitTimes(empty)
    not_read: tuple[NotRead, ...] = ()
    try:
        if empty:
            _read(times, settings)
    except OttlaError as error:
        not_read = (NotRead(part=Part.COMMIT_TIMES, subject=OFFSETS_TOPIC, reason=str(error)),)
    if times.unreadable:
        reason = f"{times.unreadable:,} records are none that Kafka writes"
        not_read = (*not_read, NotRead(part=Part.COMMIT_TIMES, subject=OFFSETS_TOPIC, reason=reason))
    return replace(
        facts,
        parts=tuple(sorted({*facts.parts, Part.COMMIT_TIMES})),
        groups=tuple(times.of(group) if group.group_id in empty else group for group in facts.groups),
        not_read=(*facts.not_read, *not_read),
    )


def _read(times: CommitTimes, settings: WireSettings) -> None:
    with Cluster(settings) as cluster:
        topic = cluster.topic(OFFSETS_TOPIC)
        places = [TopicPartition(OFFSETS_TOPIC, number) for number in topic.leaders]
        starts, ends = (cluster.list_offsets(dict.fromkeys(places, at)) for at in (EARLIEST, LATEST))
        ranges = [
            OffsetRange(
                topic=OFFSETS_TOPIC,
                partition=place.partition,
                start=starts[place][0],
                end=ends[place][0],
                topic_id=topic.topic_id,
            )
            for place in places
            if starts[place][0] < ends[place][0]
        ]
        with closing(batches_of_ranges(cluster, ranges, on_data_loss=OnDataLoss.EARLIEST)) as reading:
            for found in reading:
                for block in rows_of(found, settings.decode_limits):
                    for _, _, key, value, _ in block.rows:
                        times.take(key, value)
