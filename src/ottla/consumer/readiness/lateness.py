"""Since when a partition's oldest unfinished record could have been finished: what readiness counts from.

Not from the fetch: with a slow handler thousands of records wait in the buffer, in good health. A record is late when
it was *handed out* long ago. One that still waits for its turn is late only when its handler finishes nothing at all,
of any partition.
"""

from __future__ import annotations

from ottla.consumer.partitions.partition import PartitionState
from ottla.consumer.scheduling.route import RouteState


def note_progress(state: PartitionState, route: RouteState, now_ms: int) -> None:
    """Take in how far the workers have come by themselves, within the runs they have. It looks at each run in flight:
    for probes, not for every step."""
    for run in state.in_flight:
        reached = max(run.done, run.reached)
        if reached > run.seen:
            run.seen = reached
            route.progressed_ms = now_ms
    state.account_progress()
    note_head(state, now_ms)


def note_head(state: PartitionState, now_ms: int) -> None:
    """Remember since when the oldest unfinished record is the oldest."""
    position = state.tracker.position
    if position != state.head:
        state.head = position
        state.head_since_ms = now_ms


def unfinished_since_ms(state: PartitionState, route: RouteState, *, is_held_by_user: bool = False) -> int | None:
    """Since when, in monotonic milliseconds; None when nothing is unfinished, or nobody is to finish it now.

    `is_held_by_user`: the user paused the partition, so that what was not handed out is not to be.
    """
    tracker = state.tracker
    fetched_ms, head = tracker.oldest_unfinished_ms, tracker.position
    if fetched_ms is None or head is None:
        return None
    level = state.level
    if level is not None and level.is_waiting(head):
        return None  # Nobody is late with what is not due.
    since_ms = _handed_out_ms(state, head)
    if since_ms is None:
        if is_held_by_user:
            return None
        since_ms = max(fetched_ms, route.progressed_ms)
    return since_ms if level is None else max(since_ms, level.due_ms)


def _handed_out_ms(state: PartitionState, offset: int) -> int | None:
    """When the handler got the oldest unfinished record for the first time; None when it has not yet."""
    letter = state.pending_writes.get(offset)
    if letter is not None:
        return letter.since_ms
    attempts = state.attempts.get(offset)
    if attempts is not None:
        return attempts.since_ms
    for run in state.in_flight:
        handed_out = run.handed_out
        if run.records[0].offset == offset:
            return run.started_ms
        if any(run.records[index].offset == offset for index in range(handed_out)):
            # The worker came to it by itself, when it was done with those before.
            return max(run.started_ms, state.head_since_ms)
    return None
