"""Offset checkpoints of a directory's logs, so that the next start need not read them."""

from __future__ import annotations

from collections.abc import Iterable

from broker_embedded.common.types import TopicPartition
from broker_embedded.storage import checkpoints
from broker_embedded.storage.log import Log
from broker_embedded.storage.log_dir import LogDir


def write_all(log_dir: LogDir, logs: Iterable[Log]) -> None:
    """Write every offset checkpoint of a directory that holds `logs`."""
    logs = list(logs)
    write_recovery_points(log_dir, logs)
    write_high_watermarks(log_dir, logs)
    write_cleaner_offsets(log_dir, logs)


def write_recovery_points(log_dir: LogDir, logs: Iterable[Log]) -> None:
    """Write the offset up to which each log was fsynced, and the offset where it begins.

    Kafka omits a log that begins with its first segment. But a power failure may restore a segment whose removal was
    not synced yet, and with it records that DeleteRecords removed.
    """
    logs = list(logs)
    log_dir.write(checkpoints.RECOVERY_POINT, {partition_of(log): log.recovery_point for log in logs})
    starts = {partition_of(log): log.log_start_offset for log in logs if log.log_start_offset > 0}
    log_dir.write(checkpoints.LOG_START, starts)


def write_high_watermarks(log_dir: LogDir, logs: Iterable[Log]) -> None:
    log_dir.write(checkpoints.HIGH_WATERMARK, {partition_of(log): log.high_watermark for log in logs})


def write_cleaner_offsets(log_dir: LogDir, logs: Iterable[Log]) -> None:
    """Write up to where each compacted log was cleaned."""
    offsets = {partition_of(log): log.cleaned_to for log in logs if log.config.is_compacted}
    log_dir.write(checkpoints.CLEANER_OFFSET, offsets)


def partition_of(log: Log) -> TopicPartition:
    """Return the partition of a log."""
    return TopicPartition(log.topic, log.partition)
