"""Counts delayed messages in schedules without a scheduler, by reading their records.

A schedule's topic also holds what was delivered and cancelled, until its scheduler deletes that. So a topic with
records may have nothing that waits: where no scheduler runs, the doctor would give a false alarm.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

from ottla.admin.facts.cluster_facts import ClusterFacts, NotRead, Part, TopicInfo
from ottla.errors import OttlaError
from ottla.records import Record
from ottla.schedule.headers import DEAD_LETTERS_SUFFIX, TOPIC_PREFIX
from ottla.schedule.listing import waiting_in
from ottla.wire_client.client_settings import WireSettings
from ottla.wire_client.cluster.cluster_client import Cluster
from ottla.wire_client.fetching.range_reading import batches_of_ranges
from ottla.wire_client.fetching.record_rows import rows_of
from ottla.wire_client.ranges import OffsetRange, OnDataLoss
from ottla_wire.records import shown_key

MOST_RECORDS: Final = 100_000
"""Maximum number of records of a schedule that are read to count the waiting ones."""
_ABSENT: Final = frozenset({"Empty", "Dead"})


def unserved_schedules(facts: ClusterFacts) -> tuple[TopicInfo, ...]:
    """Return topics of schedules that have records, and whose group has no member."""
    running = running_groups(facts)
    return tuple(
        topic
        for topic in facts.topics
        if is_schedule(topic.name) and topic.name not in running and any(each.records for each in topic.partitions)
    )


def running_groups(facts: ClusterFacts) -> set[str]:
    """Return the groups that have members."""
    return {group.group_id for group in facts.groups if group.state not in _ABSENT}


def is_schedule(name: str) -> bool:
    """Return whether a topic is named as a schedule's is."""
    return name.startswith(TOPIC_PREFIX) and not name.endswith(DEAD_LETTERS_SUFFIX)


def with_waiting(facts: ClusterFacts, settings: WireSettings) -> ClusterFacts:
    """Return the facts, with how many messages wait in schedules without a scheduler. What cannot be read is in
    `not_read`."""
    waiting: dict[str, int] = {}
    not_read: list[NotRead] = []
    wanted = [
        topic
        for topic in unserved_schedules(facts)
        if sum(each.records or 0 for each in topic.partitions) <= MOST_RECORDS
    ]
    if wanted:
        with Cluster(settings) as cluster:
            for topic in wanted:
                try:
                    waiting[topic.name] = len(waiting_in(_records(cluster, topic)))
                except OttlaError as error:
                    not_read.append(NotRead(part=Part.SCHEDULES, subject=topic.name, reason=str(error)))
    return replace(
        facts,
        parts=tuple(sorted({*facts.parts, Part.SCHEDULES})),
        topics=tuple(
            replace(topic, waiting=waiting[topic.name]) if topic.name in waiting else topic for topic in facts.topics
        ),
        not_read=(*facts.not_read, *not_read),
    )


def _records(cluster: Cluster, topic: TopicInfo) -> Iterator[Record[Any]]:
    ranges = [
        OffsetRange(
            topic=topic.name,
            partition=each.partition,
            start=each.log_start,
            end=each.high_watermark,
            topic_id=cluster.topic(topic.name).topic_id,
        )
        for each in topic.partitions
        if each.log_start is not None and each.high_watermark is not None and each.log_start < each.high_watermark
    ]
    with closing(batches_of_ranges(cluster, ranges, on_data_loss=OnDataLoss.EARLIEST)) as reading:
        for found in reading:
            for block in rows_of(found, cluster.settings.decode_limits):
                for offset, at_ms, key, value, headers in block.rows:
                    yield Record(
                        topic=block.topic,
                        partition=block.partition,
                        offset=offset,
                        timestamp_ms=at_ms,
                        key=key,
                        value=value,
                        headers=[(shown_key(name), content) for name, content in headers],
                        raw_key=key,
                        raw_value=value,
                    )
