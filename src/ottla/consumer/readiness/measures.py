"""The figures of a session: lag, age, buffers, pauses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nsmallest
from itertools import islice
from typing import Final

from ottla.consumer.partitions.flow import FlowControl, PauseReason
from ottla.consumer.partitions.partition import PartitionState
from ottla.consumer.readiness.lateness import note_progress, unfinished_since_ms
from ottla.consumer.scheduling.route import RouteState
from ottla.failures.retry_headers import retry_state_of
from ottla.telemetry.metrics.measurements import PartitionMeasure, WaitingRetry

MEASURED_AT_ONCE: Final = 100
"""Partitions that are measured in one step: 14 µs each, so workers and fetching wait for 1.4 ms."""

_MOST_RETRIES: Final = 10
"""Waiting retries that are reported per partition. The headers of each are read once a second."""


def partition_measures(
    states: Iterable[PartitionState],
    routes: Mapping[str, RouteState],
    *,
    flow: FlowControl,
    now_ms: int,
    wall_ms: int,
) -> list[PartitionMeasure]:
    """Return the figures of these partitions. `now_ms` is monotonic, `wall_ms` the time of day."""
    return [_partition(state, routes[state.plan.name], flow, now_ms, wall_ms) for state in states]


def _partition(
    state: PartitionState, route: RouteState, flow: FlowControl, now_ms: int, wall_ms: int
) -> PartitionMeasure:
    note_progress(state, route, now_ms)
    name = state.topic_partition
    since_ms = unfinished_since_ms(state, route, is_held_by_user=flow.is_paused_for(name, PauseReason.USER))
    lag = lag_records(state)
    return PartitionMeasure(
        topic_partition=name,
        handler=state.plan.name,
        lag_records=lag,
        lag_s=None if lag is None else _lag_s(state, lag, now_ms, wall_ms),
        oldest_unfinished_s=0.0 if since_ms is None else max(0, now_ms - since_ms) / 1_000,
        buffered_records=state.tracker.window_records,
        buffered_bytes=state.tracker.window_bytes,
        paused_for=tuple(reason.value for reason in PauseReason if flow.is_paused_for(name, reason)),
        is_stopped=state.stopped is not None,
        retries=tuple(_retries(state, wall_ms - now_ms)),
        retries_waiting=_waiting(state),
    )


def _retries(state: PartitionState, epoch_offset_ms: int) -> Iterable[WaitingRetry]:
    """Yield the first retries that fall due: groups that wait in place, and records of a retry topic."""
    for offset, (due_ms, records) in nsmallest(_MOST_RETRIES, state.retries.items(), key=lambda each: each[1]):
        failed = state.attempts.get(offset)
        attempts = 0 if failed is None else failed.total
        yield WaitingRetry(offset=offset, records=records, attempts=attempts, due_ms=due_ms + epoch_offset_ms)
    if state.level is not None:
        for due_ms, record in islice(state.level.waiting, _MOST_RETRIES):
            story = retry_state_of(record.headers)
            attempts = 0 if story is None else story.attempts
            yield WaitingRetry(offset=record.offset, records=1, attempts=attempts, due_ms=due_ms + epoch_offset_ms)


def _waiting(state: PartitionState) -> int:
    in_topic = 0 if state.level is None else state.level.not_due
    return in_topic + sum(records for _, records in state.retries.values())


def lag_records(state: PartitionState) -> int | None:
    """Return the number of unfinished records up to the end of the log; None until the log was looked at."""
    log, tracker = state.log, state.tracker
    if not log.was_looked_at:
        return None
    end = max(log.end, tracker.end or 0)
    if tracker.unfinished_count:
        # Records that are finished beyond the position do not lag.
        return max(0, end - (tracker.position or 0) - tracker.finished_beyond_count)
    # If all is done, the client may have passed markers of transactions, which are no records.
    return max(0, end - max(log.at, tracker.end or 0, log.expected or 0))


def _lag_s(state: PartitionState, lag: int, now_ms: int, wall_ms: int) -> float:
    if lag == 0:
        return 0.0
    timestamp_ms = state.oldest_timestamp_ms()
    if timestamp_ms is not None and timestamp_ms >= 0:
        return max(0, wall_ms - timestamp_ms) / 1_000
    since_ms = state.log.behind_since_ms
    return 0.0 if since_ms is None else max(0, now_ms - since_ms) / 1_000
