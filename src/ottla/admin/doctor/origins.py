"""Settings that many topics have of their brokers: one cause, one finding, one fix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.admin.doctor.check_registry import CheckResult
from ottla.admin.doctor.finding import is_own, some
from ottla.admin.facts.cluster_facts import TopicInfo

OF_BROKERS: Final = {
    "compression.type": "compression.type",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "max.message.bytes": "message.max.bytes",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""A topic's setting -> the brokers' that stands for it where the topic has none."""


def merge_inherited(
    found: Sequence[tuple[TopicInfo, CheckResult]], setting: str, fix: str, *also: str
) -> list[CheckResult]:
    """Return the findings of topics, with those that inherit the setting (and `also`) from their brokers merged into
    one finding. `fix` is the value that fixes it for all: `1`, or a word for it."""
    own = [each for topic, each in found if any(is_own(topic, name) for name in (setting, *also))]
    inherited = [(topic, each) for topic, each in found if not any(is_own(topic, name) for name in (setting, *also))]
    if len(inherited) < 2:
        return own + [each for _, each in inherited]
    of_brokers = OF_BROKERS[setting]
    (_, first) = inherited[0]
    names = some([topic.name for topic, _ in inherited])
    together = CheckResult(
        subject=of_brokers,
        severity=first.severity,
        message=f"{len(inherited)} topics ({names}) have {setting} of their brokers: {first.message}",
        fix=f"ottla cluster set all {of_brokers}={fix}",
    )
    return [*own, together]
