"""The health of a session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.consumer.partitions.flow import FlowControl, PauseReason
from ottla.consumer.partitions.log_watch import standstill
from ottla.consumer.partitions.partition import PartitionState
from ottla.consumer.readiness.health import Health, PartitionHealth
from ottla.consumer.readiness.lateness import note_progress, running_since_ms, unfinished_since_ms
from ottla.consumer.scheduling.route import RouteState


def session_health(
    states: Iterable[PartitionState],
    routes: Mapping[str, RouteState],
    *,
    flow: FlowControl,
    dead_workers: Sequence[str],
    now_ms: int,
    unready_after_ms: int,
) -> Health:
    """Return the health: alive while no worker has died; ready while no partition is stopped, late, or waits for
    another member."""
    problems = [f"a worker died: {error}" for error in dead_workers]
    partitions: list[PartitionHealth] = []
    states = list(states)
    for state in states:  # before any is judged: they share handlers
        note_progress(state, routes[state.plan.name], now_ms)
    for state in states:
        is_held = flow.is_paused_for(state.topic_partition, PauseReason.USER)
        since_ms = unfinished_since_ms(state, routes[state.plan.name], is_held_by_user=is_held)
        age_ms = 0 if since_ms is None else max(0, now_ms - since_ms)
        running_ms = running_since_ms(state)
        stopped = None if state.stopped is None else state.stopped.reason
        if state.stopped is not None:
            problems.append(f"{state.topic_partition} stopped at offset {state.stopped.offset}: {stopped}")
        elif age_ms > unready_after_ms:
            problems.append(
                f"{state.topic_partition}: offset {state.tracker.position} is unfinished for "
                f"{age_ms / 1_000:.0f} s, the limit is {unready_after_ms / 1_000:g} s (unready_after_s)"
            )
        if state.stopped is None and state.has_failing_write:
            problems += _failing_writes(state)
        still = standstill(state, unready_after_ms)
        if still is not None:
            problems.append(still)
        if state.level is not None and state.level.absent:
            absent = ", ".join(map(str, state.level.absent))
            problems.append(f"{state.topic_partition} waits for {absent}, which another member has or nobody")
        partitions.append(
            PartitionHealth(
                topic_partition=state.topic_partition,
                oldest_unfinished_age_ms=age_ms,
                oldest_unfinished_offset=None if since_ms is None else state.tracker.position,
                buffered_records=state.tracker.window_records,
                stopped=stopped,
                handler_running_ms=0 if running_ms is None else max(0, now_ms - running_ms),
            )
        )
    return Health(
        is_alive=not dead_workers,
        is_ready=not problems,
        partitions=tuple(partitions),
        problems=tuple(problems),
        limited=tuple(name for name, route in routes.items() if route.is_limited(now_ms)),
    )


def _failing_writes(state: PartitionState) -> list[str]:
    """Return the first failing write of each target topic: others only wait behind it."""
    failing = [write for write in state.pending_writes.values() if write.failed_writes]
    firsts = {write.effect.target: write for write in reversed(failing)}
    name = state.topic_partition
    return [
        f"{name}: offset {write.effect.record.offset} could not be written to {target}: {write.error}"
        for target, write in firsts.items()
    ]
