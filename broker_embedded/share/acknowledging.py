"""Acknowledgements of leased records: each takes effect once it is written.

A request changes all of its records, or none. A change is pending until the share coordinator has it; a write that
fails brings back what was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla_wire.protocol import ErrorCode

from .events import Acknowledge, Answer, MoreAvailable, Persisted, StateBatch, append_batch
from .runs import NO_DEADLINE, NO_WRITE, batch_of
from .states import AFTER_ACKNOWLEDGE, AcknowledgeType, RecordState

if TYPE_CHECKING:
    from .partition import SharePartition

_AVAILABLE, _ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED


class Waiting(NamedTuple):
    """An acknowledgement whose outcome is being written."""

    ticket: object
    first: int
    last: int
    rejected: tuple[tuple[int, int], ...]
    """Ranges of what was rejected."""


def acknowledge(partition: SharePartition, event: Acknowledge, now_ms: int) -> None:
    """Change all records of the request, or none."""
    wanted: list[tuple[int, int, AcknowledgeType]] = []
    for each in event.ranges:
        if each.last < partition.start_offset:
            continue  # the log start has passed it
        wanted += _by_type(each.first, each.types, each.last, partition.start_offset)
    for first, last, _ in wanted:
        problem = _problem(partition, event.member_id, first, last)
        if problem is not None:
            partition.effects.append(Answer(ticket=event.ticket, error=ErrorCode.INVALID_RECORD_STATE, message=problem))
            return
    settled = [(first, last, kind) for first, last, kind in wanted if kind is not AcknowledgeType.RENEW]
    for first, last, kind in wanted:
        if kind is AcknowledgeType.RENEW:
            partition.lease(partition.runs.within(first, last), event.member_id, now_ms, is_delivery=False)
            partition.runs.join(first, last)
    if not settled:
        partition.effects.append(Answer(ticket=event.ticket))
        return
    write_id = partition.next_write_id
    changed: list[StateBatch] = []
    for first, last, kind in settled:
        for run in partition.runs.within(first, last):
            before = run.standing
            state = AFTER_ACKNOWLEDGE[kind]
            if kind is AcknowledgeType.REJECT:
                state = partition.given_up()
            partition.change(run, partition.standing_after(before, state))
            run.write_id, run.before = write_id, before
            append_batch(changed, batch_of(run))
        partition.runs.join(first, last)
    rejected = tuple((first, last) for first, last, kind in settled if kind is AcknowledgeType.REJECT)
    partition.waiting[write_id] = Waiting(event.ticket, settled[0][0], settled[-1][1], rejected)
    partition.persist(changed)


def _problem(partition: SharePartition, member_id: str, first: int, last: int) -> str | None:
    if last >= partition.end_offset:
        return f"offsets {first} to {last} were not all delivered: the end offset is {partition.end_offset}"
    for run in partition.runs.overlapping(first, last):
        found = run.standing
        if found.state is not _ACQUIRED or run.write_id:
            return f"offset {max(first, run.first)} is {found.state.name.lower()}, not acquired"
        if found.member_id != member_id:
            return f"offset {max(first, run.first)} is acquired by another member"
    return None


def persisted(partition: SharePartition, event: Persisted, now_ms: int) -> None:
    """Let the changes of a write count; if it failed, bring back what was."""
    waiting = partition.waiting.pop(event.write_id, None)
    if waiting is None:
        return
    ticket, first, last, rejected = waiting
    is_available = False
    for run in [run for run in partition.runs.overlapping(first, last) if run.write_id == event.write_id]:
        before = run.before
        run.write_id, run.before = NO_WRITE, None
        if event.error is not ErrorCode.NONE and before is not None:
            partition.change(run, before)
            partition.deadlines.add(run.deadline_ms, run.first, run.last)
            continue
        run.deadline_ms = NO_DEADLINE
        if run.standing.state is _AVAILABLE:
            partition.first_candidate = min(partition.first_candidate, run.first)
            is_available = True
        elif run.standing.state is RecordState.ARCHIVING:
            partition.write_dead_letters(batch_of(run), rejected)
    partition.runs.join(first, last)
    partition.advance()
    partition.expire(now_ms)
    partition.effects.append(Answer(ticket=ticket, error=event.error))
    if is_available or event.error is ErrorCode.NONE:
        partition.effects.append(MoreAvailable())  # a start offset that moves makes room below the in-flight limit


def _by_type(
    first: int, types: Sequence[AcknowledgeType], last: int, start_offset: int
) -> list[tuple[int, int, AcknowledgeType]]:
    """Return the ranges of one type each, from the start offset on."""
    if len(types) == 1:
        return [(max(first, start_offset), last, types[0])]
    found: list[tuple[int, int, AcknowledgeType]] = []
    for offset, kind in enumerate(types, first):
        if offset < start_offset:
            continue
        if found and found[-1][2] is kind:
            found[-1] = (found[-1][0], offset, kind)
        else:
            found.append((offset, offset, kind))
    return found
