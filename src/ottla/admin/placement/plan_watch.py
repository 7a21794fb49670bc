"""What `ottla plan watch` decides: when each disk is full, how skewed brokers are, whether a plan is due. Pure.

A rate is measured over the samples of the last hour at most, so that a segment that was deleted does not look like a
disk that empties. Time is that of the facts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.admin.facts.cluster_facts import ClusterFacts
from ottla.admin.placement.cluster_model import Model
from ottla.admin.placement.move_plan import fullest
from ottla.admin.placement.placement_state import Goals
from ottla.admin.placement.plan_judgement import plan_of
from ottla.errors import InputError

_WINDOW_MS: Final = 3_600_000
_MOST_SAMPLES: Final = 240
_HOURS: Final = re.compile(r"(\d{1,2})-(\d{1,2})")

Disk = tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchLimits:
    """A plan is due when a disk would be full within `before_s`, or brokers were skewed for `skewed_for_s`.

    Full is `max_fill` of a disk. `skew` is the fullest broker over what can be reached at all. Two samples closer than
    `least_s` give no rate.
    """

    before_s: float = 48 * 3600.0
    skew: float = 1.3
    skewed_for_s: float = 3600.0
    max_fill: float = 0.85
    least_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskOutlook:
    """The current state of a disk, and when it will be full. `full_in_s` is None if it does not fill, or its rate is
    not known yet."""

    broker: int
    path: str
    total: int
    used: int
    bytes_per_s: float | None
    full_in_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Result of one check of the facts. A plan is due if there are `reasons`."""

    at_ms: int
    disks: tuple[DiskOutlook, ...]
    skew: float
    skewed_for_s: float
    reasons: tuple[str, ...]


@dataclass(slots=True)
class PlanWatch:
    """Remembers samples. One for each cluster that is watched."""

    limits: WatchLimits
    _samples: list[tuple[int, Mapping[Disk, int]]] = field(default_factory=list)
    _skewed_since_ms: int | None = None

    def look(self, facts: ClusterFacts, model: Model) -> Outlook:
        """Return one sample more, and what follows from it."""
        used = {
            (broker.id, log_dir.path): log_dir.total_bytes - log_dir.usable_bytes
            for broker in facts.brokers
            for log_dir in broker.log_dirs or ()
            if log_dir.error is None and log_dir.total_bytes is not None and log_dir.usable_bytes is not None
        }
        self._samples = [each for each in self._samples if facts.at_ms - _WINDOW_MS <= each[0] < facts.at_ms]
        if len(self._samples) >= _MOST_SAMPLES:
            self._samples = self._samples[::2]
        self._samples.append((facts.at_ms, used))
        disks = tuple(
            self._disk(broker.id, disk.path, disk.total, used[broker.id, disk.path])
            for broker in model.brokers
            for disk in broker.disks
            if disk.total and (broker.id, disk.path) in used
        )
        state = plan_of((), model, goals=Goals(max_fill=self.limits.max_fill))
        skew = fullest(state.before) / state.floor.level
        if skew <= self.limits.skew:
            self._skewed_since_ms = None
        elif self._skewed_since_ms is None:
            self._skewed_since_ms = facts.at_ms
        skewed_for_s = 0.0 if self._skewed_since_ms is None else (facts.at_ms - self._skewed_since_ms) / 1000
        return Outlook(
            at_ms=facts.at_ms,
            disks=disks,
            skew=skew,
            skewed_for_s=skewed_for_s,
            reasons=(*self._full_soon(disks), *self._skewed(skew, skewed_for_s)),
        )

    def forget(self) -> None:
        """Forget the rates, after moves: what they copied is not what is written."""
        self._samples.clear()
        self._skewed_since_ms = None

    def _disk(self, broker: int, path: str, total: int, used: int) -> DiskOutlook:
        rate = self._rate((broker, path))
        left = total * self.limits.max_fill - used
        full_in_s = 0.0 if left <= 0 else left / rate if rate is not None and rate > 0 else None
        return DiskOutlook(broker=broker, path=path, total=total, used=used, bytes_per_s=rate, full_in_s=full_in_s)

    def _rate(self, disk: Disk) -> float | None:
        known = [(at_ms, used[disk]) for at_ms, used in self._samples if disk in used]
        (first_ms, first), (last_ms, last) = known[0], known[-1]
        seconds = (last_ms - first_ms) / 1000
        return None if seconds < self.limits.least_s else (last - first) / seconds

    def _full_soon(self, disks: tuple[DiskOutlook, ...]) -> list[str]:
        found = []
        for disk in disks:
            if disk.full_in_s is None or disk.full_in_s > self.limits.before_s:
                continue
            place = f"disk {disk.path} of broker {disk.broker}"
            fill = f"{self.limits.max_fill:.0%} full"
            when = f"is {fill} in {disk.full_in_s / 3600:,.1f} h" if disk.full_in_s > 0 else f"is more than {fill}"
            found.append(f"{place} {when}")
        return found

    def _skewed(self, skew: float, for_s: float) -> list[str]:
        if self._skewed_since_ms is None or for_s < self.limits.skewed_for_s:
            return []
        return [f"the fullest broker has {skew:.2f} × the best reachable level"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hours:
    """Hours of the day in UTC, from one to another; they may span midnight."""

    begin: int
    end: int

    def has(self, hour: int) -> bool:
        """Return whether an hour is one of them."""
        if self.begin < self.end:
            return self.begin <= hour < self.end
        return hour >= self.begin or hour < self.end


def parse_hours(text: str) -> Hours:
    """Parse hours such as `22-6`. Raises `InputError` for anything else."""
    found = _HOURS.fullmatch(text.strip())
    begin, end = (int(found[1]), int(found[2])) if found is not None else (24, 0)
    if begin > 23 or end > 24 or begin == end:
        raise InputError(f"hours: found {text!r}, wanted two hours of the day in UTC as 22-6")
    return Hours(begin=begin, end=end)


def metrics_text(outlook: Outlook, *, is_due: bool, is_running: bool) -> str:
    """Return the outlook in Prometheus' text format, for a collector of text files."""
    rows: dict[str, tuple[str, list[tuple[str, float]]]] = {
        "ottla_placement_disk_total_bytes": ("The size of a disk.", []),
        "ottla_placement_disk_used_bytes": ("What of it is used.", []),
        "ottla_placement_disk_full_seconds": (
            "Time when the disk is full at the current rate; absent if it does not fill.",
            [],
        ),
        "ottla_placement_skew_ratio": (
            "Level of the fullest broker over the best reachable level.",
            [("", outlook.skew)],
        ),
        "ottla_placement_plan_due": ("Whether a plan is due.", [("", float(is_due))]),
        "ottla_placement_plan_running": ("Whether a plan is being executed.", [("", float(is_running))]),
        "ottla_placement_looked_seconds": (
            "Time of the last look at the cluster, since 1970.",
            [("", outlook.at_ms / 1000)],
        ),
    }
    for disk in outlook.disks:
        path = disk.path.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        labels = f'{{broker="{disk.broker}",path="{path}"}}'
        rows["ottla_placement_disk_total_bytes"][1].append((labels, disk.total))
        rows["ottla_placement_disk_used_bytes"][1].append((labels, disk.used))
        if disk.full_in_s is not None:
            rows["ottla_placement_disk_full_seconds"][1].append((labels, disk.full_in_s))
    lines = []
    for name, (meaning, values) in rows.items():
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge"]
        lines += [f"{name}{labels} {value:.15g}" for labels, value in values]
    return "\n".join(lines) + "\n"
