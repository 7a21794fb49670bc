"""Where metrics come from: a small protocol that the shells call per batch and per run, never per record.

Implement what you need by deriving from `Hooks`; `Counters` counts in memory and is what tests and probes read.
OpenTelemetry's instruments get the same calls (`metrics`). Labels are few: a key would grow without bound.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence

from ottla.telemetry.metrics.measurements import (
    BatchMeasure,
    BridgeMeasure,
    BrokerMeasure,
    MemberMeasure,
    ScheduleMeasure,
)


class Hooks:
    """Does nothing. Every method may be called from any thread, and must return quickly."""

    def fetched(self, *, group: str, topic: str, records: int, size_bytes: int) -> None:
        """Count a fetched batch of one partition."""

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
        """Count a run that a worker finished: `handled` records are done, `failed` ones are retried, dead-lettered or
        stop."""

    def event(self, *, group: str, event: str) -> None:
        """Count a log event of a member: `record_dead_lettered`, `record_retried`, `partition_stopped`, ..."""

    def expired(self, *, group: str, handler: str, topic: str, records: int) -> None:
        """Count records that had expired, and were not handed to their handler, or not again."""

    def duplicates(self, *, group: str, handler: str, topic: str, records: int) -> None:
        """Count messages that the inbox had already, so that they were not handled again."""

    def malformed(
        self, *, group: str, handler: str, topic: str, part: str, serde: str, kind: str, records: int
    ) -> None:
        """Count records whose key or value (`part`) this serde could not decode: ``malformed`` or ``invalid``. They are
        among the `failed` of `run_finished`."""

    def committed(self, *, group: str, partitions: int) -> None:
        """Count a commit that the coordinator acknowledged."""

    def run_timed(
        self,
        *,
        group: str,
        handler: str,
        topic: str,
        records: int,
        is_batch: bool,
        duration_s: float,
        buffered_s: float,
        end_to_end_s: float | None,
    ) -> None:
        """Measure the time of a run in its handler: `duration_s` for its `records` together.

        `buffered_s` is how long the oldest of them had waited since its fetch, `end_to_end_s` the time since the first
        one's timestamp; None when it has none.
        """

    def decided(self, *, group: str, topic: str, event: str, kind: str, attempts: int) -> None:
        """Count the decision about a failed record: `event` is the log event, `attempts` how often it was delivered."""

    def commit_answered(self, *, group: str, duration_s: float, error: str) -> None:
        """Count the response to a commit; `error` is empty, ``fenced`` or ``refused``."""

    def rebalanced(self, *, group: str, kind: str, partitions: int, duration_s: float) -> None:
        """Measure partitions that were ``assigned``, ``revoked`` or ``lost``: for an assignment, the time since the
        member had none or gave some up; for the others, the time until they were released."""

    def measured(self, *, group: str, member: str, measure: MemberMeasure) -> None:
        """Take the state of a member, once a second, and once at its end with nothing assigned. `member` names it in
        this process."""

    def jobs_leased(self, *, group: str, topic: str, delivery_count: int, records: int) -> None:
        """Count records that a broker leased to a queue, each for the `delivery_count`th time in its group."""

    def jobs_settled(self, *, group: str, topic: str, outcome: str, records: int) -> None:
        """Count leases of a queue that ended: ``accepted``, ``released`` or ``rejected``, as its broker acknowledged,
        or ``lost``."""

    def sent(self, *, client: str, topic: str, records: int, error: str) -> None:
        """Count settled records: acknowledged, or failed with an error of this class."""

    def send_timed(self, *, client: str, topic: str, duration_s: float) -> None:
        """Measure the time from `send` to the acknowledgement of one record; one in many is timed."""

    def throttled(self, *, client: str, group: str, broker: int, duration_s: float) -> None:
        """Measure how long a broker throttled a client for its quota. `group` is empty for a producer."""

    def producer_measured(self, *, client: str, queued_records: int) -> None:
        """Take the number of a producer's unsettled records, once a second and once at its end."""

    def dispatched(self, *, schedule: str, messages: int, lateness_s: float) -> None:
        """Count messages that a scheduler delivered in one transaction; `lateness_s` is the latest message's."""

    def schedule_measured(self, *, schedule: str, scheduler: str, measure: ScheduleMeasure | None) -> None:
        """Take the state of a scheduler, about once a second; None at its end. `scheduler` names it in this process."""

    def bridge_measured(self, *, road: str, counts: Mapping[str, int], measure: BridgeMeasure) -> None:
        """Take the state of a bridge's road (``mqtt-listen``, ``mqtt-connect``, ``amqp``) every second: messages by
        outcome since the last call, and its state now."""

    def outbox_measured(self, *, relay: str, waiting: int | None, oldest_age_s: float, parked: int) -> None:
        """Take how many rows of an outbox wait, how old the oldest is, and how many were refused: every few seconds,
        from the active relay. `waiting` is None once the relay is not active any more."""

    def brokers_measured(self, *, client: str, brokers: Sequence[BrokerMeasure]) -> None:
        """Take the state of the client's brokers, every ten seconds; empty at the client's end."""

    def batches_measured(self, *, client: str, batches: Sequence[BatchMeasure]) -> None:
        """Take how full a producer's batches were, every ten seconds, by topic; empty at its end."""


class Counters(Hooks):
    """Counts by name: `counters["handled"]`, `counters["record_dead_lettered"]`, ..."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def __getitem__(self, name: str) -> int:
        with self._lock:
            return self._counts[name]

    def as_dict(self) -> dict[str, int]:
        """Return all counts, by name."""
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

    def duplicates(self, *, group: str, handler: str, topic: str, records: int) -> None:
        with self._lock:
            self._counts["duplicates"] += records

    def committed(self, *, group: str, partitions: int) -> None:
        with self._lock:
            self._counts["commits"] += 1

    def jobs_leased(self, *, group: str, topic: str, delivery_count: int, records: int) -> None:
        with self._lock:
            self._counts["jobs_leased"] += records

    def jobs_settled(self, *, group: str, topic: str, outcome: str, records: int) -> None:
        with self._lock:
            self._counts[f"jobs_{outcome}"] += records
