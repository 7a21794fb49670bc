"""Since when the oldest unfinished record of a partition is late, for readiness.

The time of the fetch does not count: behind a slow handler thousands of records wait in the buffer, in good health. A
record is late when it was *handed out* long ago. One that waits for its turn is late only if its handler finishes no
records at all, of any partition, although its `max_rate` lets it.
"""

from __future__ import annotations

from ottla.consumer.partitions.partition import PartitionState
from ottla.consumer.scheduling.route import RouteState


def note_progress(state: PartitionState, route: RouteState, now_ms: int) -> None:
    """Update from the progress of workers within their runs. It visits each run in flight, so it is called for probes,
    not for every step."""
    for run in state.in_flight:
        reached = max(run.done, run.reached)
        if reached > run.seen:
            run.seen = reached
            run.seen_ms = now_ms
            route.progressed_ms = now_ms
        elif run.is_claimed:
            run.seen_ms = now_ms
    state.account_progress()
    note_head(state, now_ms)


def note_head(state: PartitionState, now_ms: int) -> None:
    """Remember since when the oldest unfinished record is the oldest."""
    position = state.tracker.position
    if position != state.head:
        state.head = position
        state.head_since_ms = now_ms


def unfinished_since_ms(state: PartitionState, route: RouteState, *, is_held_by_user: bool = False) -> int | None:
    """Return since when, in monotonic milliseconds; None if all records are finished, or none can be finished now.

    `is_held_by_user`: the user paused the partition, so records that were not handed out are not late.
    """
    tracker = state.tracker
    fetched_ms, head = tracker.oldest_unfinished_ms, tracker.position
    if fetched_ms is None or head is None:
        return None
    level = state.level
    if level is not None and level.is_waiting(head):
        return None  # a record that is not due is not late
    since_ms = _handed_out_ms(state, head)
    if since_ms is None:
        if is_held_by_user:
            return None
        since_ms = max(fetched_ms, route.progressed_ms)
        if route.limit is not None:
            since_ms = max(since_ms, route.limit.resumes_ms)  # what waits for max_rate= is not late
    return since_ms if level is None else max(since_ms, level.due_ms)


def running_since_ms(state: PartitionState) -> int | None:
    """Return since when a handler has been with one record, the longest of those that run; None if none runs. As exact
    as progress is noted often."""
    runs = [run for run in state.in_flight if not run.is_handled and not run.is_claimed]
    return min((max(run.started_ms, run.seen_ms) for run in runs), default=None)


def _handed_out_ms(state: PartitionState, offset: int) -> int | None:
    """Return when the handler got the record at `offset` for the first time; None if it has not yet."""
    write = state.pending_writes.get(offset)
    if write is not None:
        return write.since_ms
    attempts = state.attempts.get(offset)
    if attempts is not None:
        return attempts.since_ms
    for run in state.in_flight:
        handed_out = run.handed_out
        if run.records[0].offset == offset:
            return run.started_ms
        if any(run.records[index].offset == offset for index in range(handed_out)):
            # The worker came to it when it had finished those before.
            return max(run.started_ms, state.head_since_ms)
    return None
