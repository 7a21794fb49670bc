"""Throttles that something left: which settings of topics and brokers hold replicas back, and what they go back to.

A run that was interrupted, a tool that never took them away (`kafka-reassign-partitions` without `--verify`), or a
person: the cluster does not record who it was. The journals of runs do, and what a run found there comes back. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ottla.admin.facts.cluster_facts import ClusterFacts, SettingInfo
from ottla.admin.placement import journal
from ottla.admin.placement.run_throttles import FOLLOWERS, LEADERS, RATES, ThrottleSetting, from_journal

DISK_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
"""Throttles that Kafka's tool sets for moves between the disks of a broker."""
_OF_TOPICS: Final = (FOLLOWERS, LEADERS)
_OF_BROKERS: Final = (*RATES, DISK_RATE)
_OWN: Final = {"topic": "DYNAMIC_TOPIC_CONFIG", "broker": "DYNAMIC_BROKER_CONFIG"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunThrottle:
    """Throttles that a run has set and not removed. `is_running`: a command runs it now. `file` is its plan."""

    file: str
    settings: tuple[ThrottleSetting, ...]
    is_running: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftThrottle:
    """A setting that throttles. `now` becomes `then`; None is not set. `run` names the plan whose run has set it.

    `is_kept` says that this run is under way: the setting stays.
    """

    kind: str
    resource: str
    name: str
    now: str
    then: str | None = None
    run: str = ""
    is_kept: bool = False

    @property
    def setting(self) -> ThrottleSetting:
        """Return the throttle as the argument of `asks.set_all(..., back=True)`."""
        return ThrottleSetting(kind=self.kind, resource=self.resource, name=self.name, old=self.then, new=self.now)


def left_throttles(facts: ClusterFacts, runs: Iterable[RunThrottle] = ()) -> tuple[LeftThrottle, ...]:
    """Return all settings of single topics and brokers that throttle. A rate that is set for all brokers at once is
    none."""
    of_runs: dict[tuple[str, str, str], tuple[RunThrottle, ThrottleSetting]] = {}
    for run in sorted(runs, key=lambda run: run.is_running):  # one that is under way has the last word
        of_runs |= {(each.kind, each.resource, each.name): (run, each) for each in run.settings}
    found = []
    for each in _set(facts):
        known = of_runs.get((each.kind, each.resource, each.name))
        if known is not None:
            run, setting = known
            each = replace(each, then=setting.old, run=run.file, is_kept=run.is_running)
        if each.now != each.then:  # a run that has put it back, and was killed before it wrote so
            found.append(each)
    return tuple(found)


def throttle_of(lines: Iterable[journal.Line]) -> tuple[ThrottleSetting, ...]:
    """Return the throttle settings that a run has set and not restored, by the lines of its journal."""
    settings: tuple[ThrottleSetting, ...] = ()
    for line in lines:
        if line["step"] == journal.THROTTLE:
            settings = tuple(from_journal(line))
        elif line["step"] == journal.RESTORED:
            settings = ()
    return settings


def _set(facts: ClusterFacts) -> Iterator[LeftThrottle]:
    owners: list[tuple[str, str, Mapping[str, SettingInfo], tuple[str, ...]]] = [
        *(("topic", topic.name, topic.settings, _OF_TOPICS) for topic in facts.topics),
        *(("broker", str(broker.id), broker.settings, _OF_BROKERS) for broker in facts.brokers),
    ]
    for kind, resource, settings, names in owners:
        for name in names:
            fact = settings.get(name)
            if fact is not None and fact.value and fact.source == _OWN[kind]:
                yield LeftThrottle(kind=kind, resource=resource, name=name, now=fact.value)
