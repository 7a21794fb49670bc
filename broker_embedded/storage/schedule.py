"""Decides when each kind of periodic work is due, from the intervals and the time that the caller passes."""

from __future__ import annotations

from enum import Enum, auto

from ottla_wire.facts import fact


@fact
class Intervals:
    """Intervals of `tick` in milliseconds, by Kafka's defaults."""

    retention_check_ms: int = 300_000
    """log.retention.check.interval.ms"""
    flush_check_ms: int = 3_000
    """log.flush.scheduler.interval.ms, kept short: it also makes rolled segments durable."""
    recovery_point_checkpoint_ms: int = 60_000
    """log.flush.offset.checkpoint.interval.ms and log.flush.start.offset.checkpoint.interval.ms"""
    high_watermark_checkpoint_ms: int = 5_000
    """replica.high.watermark.checkpoint.interval.ms"""
    producer_expiration_check_ms: int = 600_000
    """producer.id.expiration.check.interval.ms"""
    cleaner_backoff_ms: int = 15_000
    """log.cleaner.backoff.ms"""


class MaintenanceWork(Enum):
    """The kinds of periodic work."""

    FLUSH = auto()
    RETENTION = auto()
    PRODUCER_EXPIRATION = auto()
    CLEANER = auto()
    RECOVERY_POINT = auto()
    HIGH_WATERMARK = auto()


class Schedule:
    """Each kind is due once per interval, the first time one interval after the start."""

    def __init__(self, intervals: Intervals, *, now_ms: int) -> None:
        self._interval_ms = {
            MaintenanceWork.FLUSH: intervals.flush_check_ms,
            MaintenanceWork.RETENTION: intervals.retention_check_ms,
            MaintenanceWork.PRODUCER_EXPIRATION: intervals.producer_expiration_check_ms,
            MaintenanceWork.CLEANER: intervals.cleaner_backoff_ms,
            MaintenanceWork.RECOVERY_POINT: intervals.recovery_point_checkpoint_ms,
            MaintenanceWork.HIGH_WATERMARK: intervals.high_watermark_checkpoint_ms,
        }
        self._due_ms = {work: now_ms + interval_ms for work, interval_ms in self._interval_ms.items()}

    def is_due(self, work: MaintenanceWork, *, now_ms: int) -> bool:
        """Return whether it is due; then the next interval begins."""
        if now_ms < self._due_ms[work]:
            return False
        self._due_ms[work] = now_ms + self._interval_ms[work]
        return True
