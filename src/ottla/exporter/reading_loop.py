"""Reads the cluster at intervals, and answers scrapes from what was read last.

A scrape asks the cluster nothing, so that two servers of Prometheus cost no more than one. A cluster that cannot be
read is `ottla_cluster_up 0`; after `STALE_INTERVALS` its last figures are no longer served.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Protocol

from ottla.admin.facts.admin_operation import AdminOperation
from ottla.admin.facts.cluster_facts import ClusterFacts, Part
from ottla.errors import OttlaError
from ottla.exporter.age_lookup import look_up_ages
from ottla.exporter.cluster_readings import (
    READ_ALWAYS,
    READ_FOR_THE_DOCTOR,
    ClusterReadings,
    ConnectTimes,
    ExportChoices,
)
from ottla.exporter.prometheus_text import MetricFamilies, Series
from ottla.exporter.small_lag_counts import SmallLagCounts
from ottla.wire_client.client_settings import WireSettings
from ottla.wire_client.cluster.cluster_client import Cluster
from ottla.wire_client.net.broker_connection import Connection

STALE_INTERVALS: Final = 3
_GROUP: Final = "group "
"""How the subject of a group that could not be read begins."""

_STATM: Final = Path("/proc/self/statm")


class ReadsFacts(Protocol):
    """The methods of `Admin` that are used here."""

    def facts(self, parts: frozenset[Part]) -> ClusterFacts: ...

    def carry_out(self, asking: AdminOperation[None]) -> None: ...


class ReadingLoop:
    """`start` reads in a thread of its own until `close`; `scrape` answers from any thread."""

    def __init__(
        self,
        admin: ReadsFacts,
        connects: Callable[[ClusterFacts], ConnectTimes],
        choices: ExportChoices,
        *,
        open_cluster: Callable[..., Cluster],
        every_s: float,
        doctor_every_s: float | None,
        warn: Callable[[str], object],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a loop. `open_cluster` opens a client that reads records. `doctor_every_s`: None for no doctor. `warn`
        gets a sentence when reads begin to fail, and when they succeed again."""
        self._admin, self._connects_of = admin, connects
        self._small_lags = SmallLagCounts(open_cluster)
        self._readings, self._excluded = ClusterReadings(choices), choices.excluded_groups
        self._every_s, self._doctor_every_s = every_s, doctor_every_s
        self._warn, self._monotonic = warn, monotonic
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._doctor_due_s = float("-inf")
        # Shared with scrapes, under the lock:
        self._text = b""
        self._series = 0
        self._dropped: Mapping[str, int] = {}
        self._read_at_s = float("-inf")
        self._facts_at_ms: int | None = None
        self._took_s = 0.0
        self._problem: str | None = "the cluster has not been read yet"
        self._reads = {"ok": 0, "failed": 0}

    def start(self) -> None:
        """Start to read."""
        self._thread = threading.Thread(target=self._run, name="ottla-exporter", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread. A read that is under way may outlive this."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(5)

    @property
    def problem(self) -> str | None:
        """Why the cluster could not be read the last time; None if it could."""
        with self._changed:
            return self._problem

    def scrape(self) -> bytes:
        """Return the metrics."""
        with self._changed:
            is_stale = self._monotonic() - self._read_at_s > STALE_INTERVALS * self._every_s + self._took_s
            own = MetricFamilies(most_series=len(self._dropped) + len(self._reads))
            own.add(self._own_series(is_stale=is_stale))
            return own.text() + (b"" if is_stale else self._text)

    def read(self) -> None:
        """Read the cluster once. What fails is a metric and a warning, and is not raised."""
        began_s = self._monotonic()
        is_doctors = self._doctor_every_s is not None and began_s >= self._doctor_due_s
        problem = None
        families = None
        at_ms = 0
        try:
            at_ms, families = self._families(is_doctors=is_doctors)
        except OttlaError as error:
            problem = f"{type(error).__name__}: {error}"
        except Exception as error:  # a mistake of ours, or what a broker never sends: the next read may succeed
            problem = f"{type(error).__name__} in the exporter: {error}"
        series = 0 if families is None else families.count
        text = b"" if families is None else families.text()
        ended_s = self._monotonic()
        if families is not None and is_doctors and self._doctor_every_s is not None:
            self._doctor_due_s = began_s + self._doctor_every_s
        with self._changed:
            before, self._problem = self._problem, problem
            self._reads["ok" if problem is None else "failed"] += 1
            self._took_s = ended_s - began_s
            has_succeeded = self._facts_at_ms is not None
            if families is not None:
                self._text, self._series, self._dropped = text, series, families.dropped
                self._read_at_s, self._facts_at_ms = ended_s, at_ms
            self._changed.notify_all()
        if problem is not None and problem != before:
            self._warn(f"the cluster cannot be read: {problem}")
        elif problem is None and before is not None and (has_succeeded or self._reads["failed"]):
            self._warn("the cluster is read again")

    def _families(self, *, is_doctors: bool) -> tuple[int, MetricFamilies]:
        """Return when the cluster was read, and its metrics. The facts are not kept while those become text."""
        facts = self._admin.facts(READ_FOR_THE_DOCTOR if is_doctors else READ_ALWAYS)
        if self._excluded:
            facts = self._without_excluded(facts)
        groups = self._small_lags.counted(
            self._readings.take(facts), lambda group, each: self._readings.stands_still(group, each, facts.at_ms)
        )
        self._admin.carry_out(look_up_ages(self._readings.history, groups, facts))
        if is_doctors:
            self._readings.take_examination(facts)
        return facts.at_ms, self._readings.families(facts, groups, self._connects_of(facts))

    def _without_excluded(self, facts: ClusterFacts) -> ClusterFacts:
        return replace(
            facts,
            groups=tuple(each for each in facts.groups if not self._is_excluded(each.group_id)),
            not_read=tuple(
                each
                for each in facts.not_read
                if not (each.subject.startswith(_GROUP) and self._is_excluded(each.subject.removeprefix(_GROUP)))
            ),
        )

    def _is_excluded(self, group: str) -> bool:
        return any(fnmatchcase(group, pattern) for pattern in self._excluded)

    def _run(self) -> None:
        while True:
            began_s = self._monotonic()
            self.read()
            ended_s = self._monotonic()
            pause_s = max(self._every_s - (ended_s - began_s), ended_s - began_s)  # half of the time at most
            with self._changed:
                if self._changed.wait_for(lambda: self._is_closed, timeout=pause_s):
                    return

    def _own_series(self, *, is_stale: bool) -> Iterator[Series]:
        yield "ottla_cluster_up", (), int(self._problem is None and not is_stale)
        if self._facts_at_ms is not None:
            yield "ottla_exporter_last_read_timestamp_seconds", (), self._facts_at_ms / 1000
            yield "ottla_exporter_read_seconds", (), self._took_s
        for result, count in self._reads.items():
            yield "ottla_exporter_reads_total", (result,), count
        yield "ottla_exporter_series", (), 0 if is_stale else self._series
        for metric, count in self._dropped.items():
            yield "ottla_exporter_dropped_series", (metric,), count
        yield "process_cpu_seconds_total", (), time.process_time()
        memory = _resident_bytes()
        if memory is not None:
            yield "process_resident_memory_bytes", (), memory


def connect_times(facts: ClusterFacts, settings: WireSettings) -> ConnectTimes:
    """Open a connection to each broker that should take one, and close it. One that cannot be reached is not tried
    again: that would take its time twice."""
    found: dict[int, float | None] = {}
    for broker in facts.brokers:
        found[broker.id] = None
        if broker.is_fenced or broker.unreachable is not None:
            continue
        began_s = time.perf_counter()
        try:
            Connection(broker.host, broker.port, settings).close()
        except OttlaError:
            continue
        found[broker.id] = time.perf_counter() - began_s
    return ConnectTimes(seconds=found)


def _resident_bytes() -> int | None:
    """Return the process's resident memory; None where the system has no such file."""
    try:
        pages = int(_STATM.read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
