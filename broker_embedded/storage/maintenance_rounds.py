"""Periodic work on all logs of a broker: retention, flush.ms, checkpoints, producer expiry, compaction.

A failure of one log or one directory is logged, and the work continues with the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.filesystem import parent
from broker_embedded.storage import offset_checkpoints
from broker_embedded.storage.cleaner import LogCleaner
from broker_embedded.storage.log import Log
from broker_embedded.storage.log_dir import LogDir
from broker_embedded.storage.log_dirs import LogDirs
from broker_embedded.storage.schedule import MaintenanceWork, Schedule

logger = logging.getLogger(__name__)

WriteCheckpoint = Callable[[LogDir, Iterable[Log]], None]


class MaintenanceRounds:
    """See the module. `logs` gives all of them, `logs_in` those in a directory."""

    def __init__(
        self,
        *,
        logs: Callable[[], Sequence[Log]],
        logs_in: Callable[[str], Sequence[Log]],
        dirs: LogDirs,
        schedule: Schedule,
        cleaner: LogCleaner,
        cleaner_enabled: bool,
    ) -> None:
        self._logs = logs
        self._logs_in = logs_in
        self._dirs = dirs
        self._schedule = schedule
        self._cleaner = cleaner
        self._cleaner_enabled = cleaner_enabled

    def tick(self, *, now_ms: int) -> None:
        """Run due work."""
        is_due = self._schedule.is_due
        if is_due(MaintenanceWork.FLUSH, now_ms=now_ms):
            self._each(_flush_if_due, now_ms)
        if is_due(MaintenanceWork.RETENTION, now_ms=now_ms):
            self._each(lambda log, now: log.apply_retention(now_ms=now), now_ms)
        if is_due(MaintenanceWork.PRODUCER_EXPIRATION, now_ms=now_ms):
            self._each(_expire_producers, now_ms)
        if self._cleaner_enabled and is_due(MaintenanceWork.CLEANER, now_ms=now_ms):
            self.clean(now_ms=now_ms)
        if is_due(MaintenanceWork.RECOVERY_POINT, now_ms=now_ms):
            self.write(offset_checkpoints.write_recovery_points)
        if is_due(MaintenanceWork.HIGH_WATERMARK, now_ms=now_ms):
            self.write(offset_checkpoints.write_high_watermarks)
        self._each(lambda log, now: log.purge_deleted(now_ms=now), now_ms)

    def clean(self, *, now_ms: int, max_steps: int | None = None) -> None:
        """Compact what is dirty enough, until nothing is or `max_steps` were taken (one step reads about 1 MB)."""
        online = [log for log in self._logs() if log.offline_reason is None and not log.is_stray]
        cleaned = self._cleaner.run(online, now_ms=now_ms, max_steps=max_steps)
        for path in {parent(log.directory) for log in cleaned} - set(self._dirs.offline):
            offset_checkpoints.write_cleaner_offsets(self._dirs[path], self._logs_in(path))

    def write(self, what: WriteCheckpoint, *, among: Collection[str] | None = None) -> None:
        """Write a checkpoint of every directory, or of those named; a disk that refuses it may be a failed one."""
        self._dirs.each(lambda log_dir: what(log_dir, self._logs_in(log_dir.path)), among=among)

    def _each(self, work: Callable[[Log, int], object], now_ms: int) -> None:
        for log in self._logs():
            if log.offline_reason is not None or log.is_stray:
                continue
            try:
                work(log, now_ms)
            except (OSError, BrokerError) as error:
                logger.error("%s: %s", log.name, error)
                if isinstance(error, OSError):
                    self._dirs.log_refused(log, error)


def _flush_if_due(log: Log, now_ms: int) -> None:
    if log.unflushed_records and now_ms - log.flushed_at_ms >= log.config.flush_ms:
        log.flush()
    else:
        log.flush_rolled()


def _expire_producers(log: Log, now_ms: int) -> None:
    log.producers.expire(now_ms=now_ms, after_ms=log.config.producer_id_expiration_ms)
