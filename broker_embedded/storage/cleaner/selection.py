"""Which log is dirty enough to compact, and which part of it may be. Kafka's rules, as pure functions of a log.

log start ........ cleaned_to ............ end ............ log end
           clean       |     cleanable      |   uncleanable
"""

from __future__ import annotations

from collections.abc import Iterable

from broker_embedded.storage.log import Log
from ottla_wire.facts import fact


@fact
class LogToClean:
    """A log and the range that may be compacted: [first_dirty_offset, end_offset)."""

    log: Log
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool
    """max.compaction.lag.ms has passed for the oldest dirty record."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_worth_it(self) -> bool:
        if not self.cleanable_bytes:
            return False
        return self.is_overdue or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def log_to_clean(log: Log, *, now_ms: int) -> LogToClean:
    """Measure a compacted log. Not cleanable: the active segment, offsets above the last stable offset, and records
    younger than min.compaction.lag.ms; segments are cleaned as a whole, so the one that contains the limit is left."""
    segments = log.segments
    is_known = log.log_start_offset <= log.cleaned_to <= log.log_end_offset
    first_dirty = log.cleaned_to if is_known else log.log_start_offset
    active_base = segments.active.base_offset
    dirty = [segment for segment in segments.holding(first_dirty, active_base) if segment is not segments.active]
    lag_ms = log.config.min_compaction_lag_ms
    young = [s.base_offset for s in dirty if s.largest_timestamp_ms > now_ms - lag_ms] if lag_ms > 0 else []
    limit = min(log.last_stable_offset, active_base, *young[:1])
    limit = segments[segments.floor_index(limit)].base_offset
    oldest_ms = min((t for s in dirty if (t := s.first_batch_timestamp_ms or 0) > 0), default=None)
    return LogToClean(
        log=log,
        first_dirty_offset=first_dirty,
        end_offset=max(first_dirty, limit),
        clean_bytes=sum(s.size for s in segments if s.base_offset < first_dirty),
        cleanable_bytes=sum(s.size for s in dirty if s.base_offset < limit),
        is_overdue=oldest_ms is not None and oldest_ms < now_ms - log.config.max_compaction_lag_ms,
    )


def filthiest(logs: Iterable[Log], *, now_ms: int) -> LogToClean | None:
    """Return the compacted log with the largest dirty share that is due."""
    measured = [log_to_clean(log, now_ms=now_ms) for log in logs if log.config.is_compacted]
    return max((m for m in measured if m.is_worth_it), key=lambda m: m.dirty_ratio, default=None)
