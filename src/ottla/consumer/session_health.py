"""What a session's state says about its health."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.consumer.health import Health, PartitionHealth
from ottla.consumer.partition import PartitionState


def session_health(
    states: Iterable[PartitionState], *, dead_workers: Sequence[str], now_ms: int, unfinished_limit_ms: int
) -> Health:
    """Alive as long as no worker died; ready as long as nothing stopped, is late, or waits for another member."""
    problems = [f"a worker died: {error}" for error in dead_workers]
    partitions: list[PartitionHealth] = []
    for state in states:
        since_ms = unfinished_since_ms(state)
        age_ms = 0 if since_ms is None else max(0, now_ms - since_ms)
        stopped = None if state.stopped is None else state.stopped.reason
        if state.stopped is not None:
            problems.append(f"{state.topic_partition} stopped at offset {state.stopped.offset}: {stopped}")
        elif age_ms > unfinished_limit_ms:
            problems.append(
                f"{state.topic_partition}: offset {state.tracker.position} is unfinished for "
                f"{age_ms / 1_000:.0f} s, the limit is {unfinished_limit_ms / 1_000:.0f} s"
            )
        if state.stage is not None and state.stage.absent:
            absent = ", ".join(map(str, state.stage.absent))
            problems.append(f"{state.topic_partition} waits for {absent}, which another member has or nobody")
        partitions.append(
            PartitionHealth(
                topic_partition=state.topic_partition,
                oldest_unfinished_age_ms=age_ms,
                oldest_unfinished_offset=None if since_ms is None else state.tracker.position,
                buffered_records=state.tracker.window_records,
                stopped=stopped,
            )
        )
    return Health(
        is_alive=not dead_workers,
        is_ready=not problems,
        partitions=tuple(partitions),
        problems=tuple(problems),
    )


def unfinished_since_ms(state: PartitionState) -> int | None:
    """Since when the oldest record that is not finished could have been; None when there is none."""
    since_ms = state.tracker.oldest_unfinished_ms
    stage = state.stage
    if stage is None or since_ms is None:
        return since_ms
    # Nobody is late with what was not due.
    is_waiting = bool(stage.waiting) and stage.waiting[0][1].offset == state.tracker.position
    return None if is_waiting else max(since_ms, stage.due_ms)
