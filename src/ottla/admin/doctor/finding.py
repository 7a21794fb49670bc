"""The doctor's report: findings, checks that were not made, and the evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from ottla.admin.facts.cluster_facts import BrokerInfo, ClusterFacts, SettingInfo, TopicInfo
from ottla.admin.facts.rates import Rates, rates_between
from ottla.admin.facts.shared_disks import directories_by_disk
from ottla_wire.facts import fact

if TYPE_CHECKING:
    from ottla.admin.declared.apply_plan import PlannedChange

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


class Severity(StrEnum):
    """ERROR: data or availability is at risk now. WARNING: it will hurt. NOTE: worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """0 is the worst."""
        return list(Severity).index(self)


@fact
class Finding:
    """One thing that is wrong. `message` is one sentence with what was found; `fix` is what to do, a command where
    there is one. (id, subject) is what a baseline accepts."""

    id: str
    severity: Severity
    subject: str
    message: str
    fix: str


@fact
class NotChecked:
    """A check, or a part of one, that could not be made. That is not a good result."""

    id: str
    reason: str


@fact
class Report:
    """The doctor's report. `checked` holds the ids of the checks that were made, completely or in part."""

    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]
    checked: tuple[str, ...]
    accepted: tuple[Finding, ...] = ()
    """Findings that a baseline accepts."""

    def at_least(self, severity: Severity) -> tuple[Finding, ...]:
        """Return the findings that are as bad as this, or worse."""
        return tuple(each for each in self.findings if each.severity.rank <= severity.rank)


@fact
class Limits:
    """From which size on something is worth a finding. Bytes, bytes per second, records, milliseconds."""

    disk_share: float = 0.85
    topic_disk_share: float = 0.80
    skew: float = 1.2
    empty_share: float = 0.10
    least_bytes: int = 1 << 30
    """Below this the balance of a cluster does not matter."""
    least_rate: float = 1e6
    leader_share: float = 0.10
    leader_skew: float = 1.3
    replicas_per_broker: int = 4_000
    partition_share: float = 0.95
    least_records: int = 10_000
    """Below this it does not matter in which partition records are."""
    lag_growth: int = 1_000
    eager_members: int = 20
    transaction_ms: int = 15 * MINUTE_MS
    future_ms: int = HOUR_MS
    voter_lag: int = 1_000
    state_changes: int = 3
    stuck_move_ms: int = MINUTE_MS
    forecast_ms: int = 10_000
    """Between samples closer than this a disk fills by chance: a log that was rotated would be a full disk in hours."""


@fact
class AppTopic:
    """A topic that a service uses, and what for: `reads`, `writes`, `dead letters` or `retries`.

    `of` is the topic that dead letters or retries belong to: a retry topic must have as many partitions.
    """

    topic: str
    use: str
    of: str = ""


@fact
class QueueDeclaration:
    """What a queue of a service declares: which attempt is the last, and where a new group starts."""

    max_attempts: int
    start: str


@fact
class AppDeclaration:
    """A service's declarations. `concurrency` is the number of records that one process handles at the same time."""

    name: str
    groups: Mapping[str, tuple[str, ...]]
    """Group → the topics it reads."""
    concurrency: Mapping[str, int]
    """Group → how many partitions one process works on at the same time."""
    topics: tuple[AppTopic, ...]
    consumer: Mapping[str, object] = field(default_factory=dict)
    producer: Mapping[str, object] = field(default_factory=dict)
    processes: int = 1
    assignors: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=dict)
    """Classic group → what its members offer to assign by: in threads, and on asyncio."""
    queues: Mapping[str, QueueDeclaration] = field(default_factory=dict)
    """Share group → what its queue declares."""


@fact
class Evidence:
    """Input of the checks: facts, earlier samples (oldest first), and a service that uses the cluster."""

    facts: ClusterFacts
    earlier: Sequence[ClusterFacts] = ()
    app: AppDeclaration | None = None
    drift: Sequence[PlannedChange] | None = None
    """What applying declarations would change; None where none were given."""
    drift_not_read: Sequence[str] = ()
    """Why a part of the declarations could not be compared."""
    limits: Limits = field(default_factory=Limits)

    @property
    def before(self) -> ClusterFacts | None:
        """The first sample, to compare with."""
        return self.earlier[0] if self.earlier else None

    @cached_property
    def rates(self) -> Rates | None:
        return None if self.before is None else rates_between(self.before, self.facts)

    @cached_property
    def live(self) -> tuple[BrokerInfo, ...]:
        """The brokers that send heartbeats to the controller."""
        return tuple(broker for broker in self.facts.brokers if not broker.is_fenced)

    @cached_property
    def bytes_of_broker(self) -> Mapping[int, int]:
        """The bytes of replicas on each broker whose directories were all read and are online: an offline directory
        still holds its data."""
        return {
            broker.id: sum(log_dir.replica_bytes for log_dir in broker.log_dirs)
            for broker in self.live
            if broker.log_dirs is not None and all(log_dir.error is None for log_dir in broker.log_dirs)
        }

    def broker_setting(self, name: str) -> dict[int, SettingInfo]:
        """Return broker → the setting, for brokers that returned it."""
        return {broker.id: broker.settings[name] for broker in self.live if name in broker.settings}


def disks_of(broker: BrokerInfo) -> list[tuple[str, int, int]]:
    """Return (a directory on it, total bytes, usable bytes) of each disk of a broker.

    The first of the directories that share one.
    """
    return [
        (log_dir.path, log_dir.total_bytes, log_dir.usable_bytes)
        for log_dir, *_ in directories_by_disk(broker)
        if log_dir.total_bytes and log_dir.usable_bytes is not None
    ]


def is_own(topic: TopicInfo, setting: str) -> bool:
    """Return whether a topic has a setting of its own, and not the brokers'."""
    found = topic.settings.get(setting)
    return found is not None and found.source == "DYNAMIC_TOPIC_CONFIG"


def some(names: Sequence[object], most: int = 3) -> str:
    """Return the first of many names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(str(each) for each in names[:most]) + more


def format_bytes(count: float) -> str:
    """Return a size such as 1.2 GiB."""
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1024 or unit == "TiB":
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1024
    raise AssertionError("the last unit takes everything")


def format_duration(milliseconds: float) -> str:
    """Return the largest unit that fits: 90 s, 31 h, 7 d."""
    for unit, size in (("d", DAY_MS), ("h", HOUR_MS), ("min", MINUTE_MS)):
        if milliseconds >= 2 * size:
            return f"{milliseconds / size:.0f} {unit}"
    return f"{milliseconds / 1000:.0f} s"
