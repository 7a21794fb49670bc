"""Where metrics come from: a small protocol that the shells call per batch and per run, never per record.

Implement what you need by deriving from `Hooks`; `Counters` counts in memory and is what tests and probes read. The
labels are few on purpose (group, handler, topic): a partition or a key as a label would grow without bound.
"""

from __future__ import annotations

import threading
from collections import Counter


class Hooks:
    """Does nothing. Every method may be called from any thread, and must return quickly."""

    def fetched(self, *, group: str, topic: str, records: int, size_bytes: int) -> None:
        """A batch of one partition came from the client."""

    def run_finished(
        self,
        *,
        group: str,
        handler: str,
        topic: str,
        handled: int,
        failed: int,
        malformed: int,
        skipped: int,
        duration_ms: int,
    ) -> None:
        """A worker finished a run: `handled` records are done, `failed` ones will be retried, dead-lettered or stop."""

    def event(self, *, group: str, event: str) -> None:
        """Something that is logged as well: `record_dead_lettered`, `record_retried`, `partition_stopped`, ..."""

    def expired(self, *, group: str, handler: str, topic: str, records: int) -> None:
        """Records were not handed to their handler, or not again, because they had expired."""

    def committed(self, *, group: str, partitions: int) -> None:
        """The coordinator acknowledged a commit."""


class Counters(Hooks):
    """Counts by name: `counters["handled"]`, `counters["record_dead_lettered"]`, ..."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def __getitem__(self, name: str) -> int:
        with self._lock:
            return self._counts[name]

    def as_dict(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)

    def fetched(self, *, group: str, topic: str, records: int, size_bytes: int) -> None:
        with self._lock:
            self._counts["fetched"] += records
            self._counts["fetched_bytes"] += size_bytes

    def run_finished(
        self,
        *,
        group: str,
        handler: str,
        topic: str,
        handled: int,
        failed: int,
        malformed: int,
        skipped: int,
        duration_ms: int,
    ) -> None:
        with self._lock:
            counts = self._counts
            counts["runs"] += 1
            counts["handled"] += handled
            counts["failed"] += failed
            counts["malformed"] += malformed
            counts["skipped"] += skipped

    def event(self, *, group: str, event: str) -> None:
        with self._lock:
            self._counts[event] += 1

    def expired(self, *, group: str, handler: str, topic: str, records: int) -> None:
        with self._lock:
            self._counts["expired"] += records

    def committed(self, *, group: str, partitions: int) -> None:
        with self._lock:
            self._counts["commits"] += 1
