"""Turns readings of a cluster into metrics, with what only several readings say. Pure: times are in the facts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field, replace
from typing import Final

from ottla.admin.doctor import Evidence, Report, all_checks, examine
from ottla.admin.doctor.baseline import Baseline, without_accepted
from ottla.admin.facts.cluster_facts import ClusterFacts, Part
from ottla.admin.facts.facts_reader import EVERYTHING, READING_RECORDS
from ottla.admin.facts.lag import GroupLag, PartitionLag, lag_of
from ottla.exporter.cluster_series import (
    broker_series,
    client_series,
    cluster_series,
    hidden_series,
    min_in_sync_of,
    partition_series,
    topic_series,
)
from ottla.exporter.group_series import group_series, lag_series
from ottla.exporter.group_watch import GroupWatch
from ottla.exporter.offset_history import OffsetHistory
from ottla.exporter.prometheus_text import MetricFamilies, Series
from ottla_wire.facts import fact

READ_ALWAYS: Final = frozenset(
    {
        Part.TOPICS,
        Part.OFFSETS,
        Part.LOG_DIRS,
        Part.REACHED,
        Part.GROUPS,
        Part.GROUP_MEMBERS,
        Part.GROUP_OFFSETS,
        Part.TRANSACTIONS,
        Part.MOVES,
        Part.QUORUM,
        Part.QUOTAS,
    }
)
READ_FOR_THE_DOCTOR: Final = EVERYTHING


@fact
class ExportChoices:
    """What is served."""

    by_partition: bool = False
    most_series: int = 100_000
    """Of each metric."""
    excluded_groups: tuple[str, ...] = ()
    """Shell patterns of the groups that are left out."""
    skipped_checks: tuple[str, ...] = ()
    baseline: Baseline | None = None
    """Accepted findings, which are not counted."""


@fact
class ConnectTimes:
    """How long new connections to brokers took, in seconds; None for one that failed."""

    seconds: Mapping[int, float | None] = field(default_factory=dict)


class ClusterReadings:
    """`take` each reading in turn, then `families`."""

    def __init__(self, choices: ExportChoices) -> None:
        self._choices = choices
        self.history = OffsetHistory()
        self._watch = GroupWatch()
        self._written: dict[str, int] = {}
        self._truncated: dict[str, int] = {}
        self._min_in_sync: dict[str, int] = {}
        self._connects: dict[tuple[int, str], int] = {}
        self._examined: ClusterFacts | None = None
        self._report: Report | None = None
        self._examined_ms = 0

    def take(self, facts: ClusterFacts) -> list[GroupLag]:
        """Add a reading. Returns the lag of all groups."""
        changes = self.history.take(facts)
        topics = facts.by_topic
        self._written = _sums(self._written, changes.written, topics)
        self._truncated = _sums(self._truncated, changes.truncated, topics)
        groups = [lag_of(group, facts) for group in facts.groups if group.offsets is not None]
        self._watch.take(groups, facts.at_ms)
        return groups

    def stands_still(self, group: str, each: PartitionLag, at_ms: int) -> bool:
        """Return whether a partition had lag at this committed offset at the last reading too."""
        since_ms = self._watch.stalled_since_ms(group, each)
        return since_ms is not None and since_ms < at_ms

    def take_examination(self, facts: ClusterFacts) -> None:
        """Examine facts that were read for the doctor."""
        before = self._examined
        earlier = () if before is None or not _are_comparable(before, facts) else (before,)
        report = examine(
            Evidence(facts=facts, earlier=earlier), skip=(*_not_for_clusters(), *self._choices.skipped_checks)
        )
        if self._choices.baseline is not None:
            today = dt.datetime.fromtimestamp(facts.at_ms / 1000, dt.UTC).date()
            report = without_accepted(report, self._choices.baseline, today=today)
        self._examined, self._report, self._examined_ms = kept_for_comparison(facts), report, facts.at_ms
        self._min_in_sync = min_in_sync_of(facts.topics)

    def families(self, facts: ClusterFacts, groups: Collection[GroupLag], connects: ConnectTimes) -> MetricFamilies:
        """Return the metrics of a reading that was taken."""
        self._count(connects)
        found = MetricFamilies(most_series=self._choices.most_series)
        found.add(cluster_series(facts))
        found.add(broker_series(facts))
        found.add(self._connect_series(connects))
        found.add(topic_series(facts, self._min_in_sync))
        found.add(self._change_series(facts))
        found.add(group_series(facts))
        by_partition = self._choices.by_partition
        found.add(lag_series(groups, self.history, self._watch, at_ms=facts.at_ms, by_partition=by_partition))
        if by_partition:
            found.add(partition_series(facts))
        found.add(client_series(facts))
        found.add(hidden_series(facts))
        if self._report is not None:
            found.add(_doctor_series(self._report, self._examined_ms))
        return found

    def _change_series(self, facts: ClusterFacts) -> Iterator[Series]:
        for topic in facts.topics:
            labels = (topic.name,)
            yield "ottla_cluster_topic_written_records_total", labels, self._written.get(topic.name, 0)
            yield "ottla_cluster_topic_truncated_records_total", labels, self._truncated.get(topic.name, 0)

    def _count(self, connects: ConnectTimes) -> None:
        before = {place: count for place, count in self._connects.items() if place[0] in connects.seconds}
        for broker, seconds in connects.seconds.items():
            for result, is_it in (("ok", seconds is not None), ("failed", seconds is None)):
                before[broker, result] = before.get((broker, result), 0) + is_it
        self._connects = before

    def _connect_series(self, connects: ConnectTimes) -> Iterator[Series]:
        for broker, seconds in connects.seconds.items():
            if seconds is not None:
                yield "ottla_cluster_broker_connect_seconds", (str(broker),), seconds
        for (broker, result), count in self._connects.items():
            yield "ottla_cluster_broker_connects_total", (str(broker), result), count


def _not_for_clusters() -> tuple[str, ...]:
    """Return the checks that need declarations, of a service or of the cluster, or read records."""
    return tuple(
        each.id
        for each in all_checks().values()
        if each.needs_app or each.needs_declared or each.reads & READING_RECORDS
    )


def _doctor_series(report: Report, examined_ms: int) -> Iterator[Series]:
    checks = all_checks()
    counts = {(each, checks[each].severity.value): 0 for each in report.checked}
    for finding in report.findings:
        place = finding.id, finding.severity.value
        counts[place] = counts.get(place, 0) + 1
    unchecked = {each.id for each in report.not_checked}
    for labels, count in counts.items():
        yield "ottla_doctor_findings", labels, count
    for each in sorted({*report.checked, *unchecked}):
        yield "ottla_doctor_not_checked", (each,), int(each in unchecked)
    yield "ottla_doctor_last_run_timestamp_seconds", (), examined_ms / 1000


def kept_for_comparison(facts: ClusterFacts) -> ClusterFacts:
    """Return facts without what no check reads of an earlier sample. Settings are a third of all facts."""
    return replace(
        facts,
        brokers=tuple(replace(each, settings={}) for each in facts.brokers),
        topics=tuple(replace(each, settings={}) for each in facts.topics),
        groups=tuple(replace(each, settings=None) for each in facts.groups),
        acls=None,
        quotas=None,
    )


def _are_comparable(before: ClusterFacts, after: ClusterFacts) -> bool:
    return before.cluster_id == after.cluster_id and before.at_ms < after.at_ms


def _sums(before: Mapping[str, int], more: Mapping[str, int], topics: Collection[str]) -> dict[str, int]:
    """Return counters of topics, with what came in addition, of the topics that exist."""
    found = {topic: count for topic, count in before.items() if topic in topics}
    for topic, count in more.items():
        found[topic] = found.get(topic, 0) + count
    return found
