"""Moves a member from its owned partitions to its target: first revoke, then take free ones.

    STABLE                  at the target's epoch: nothing to do. Else: next step towards the target
    UNREVOKED_PARTITIONS    waits until the member no longer reports what it has to give back, then next step
    UNRELEASED_PARTITIONS   tries the next step at each heartbeat
    next step               something to give back?  keep the epoch, ask for it back
                            else                     take what is free, go to the target's epoch; stable if that was all

So a partition has at most one owner: it is free for others only when its owner's record says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .assignment import NOTHING, Assignment, TopicIdPartition
from .member import AssignmentProgress, MemberState


def reconcile(
    progress: AssignmentProgress,
    *,
    target_epoch: int,
    target: Assignment,
    is_owned: Callable[[TopicIdPartition], bool],
    reported: Assignment | None,
) -> AssignmentProgress:
    """Return the member's next assignment. `is_owned`: does any member own the partition? `reported`: partitions that
    the member reports, None if it does not.
    """
    match progress.state:
        case MemberState.STABLE:
            if progress.epoch == target_epoch:
                return progress
            return _next_step(progress, progress.epoch, target_epoch, target, is_owned, reported)
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_has(reported, progress.pending_revocation):
                return progress
            # What it had to give back is given back: it has completed the epoch after its own.
            return _next_step(progress, progress.epoch + 1, target_epoch, target, is_owned, reported)
        case MemberState.UNRELEASED_PARTITIONS:
            return _next_step(progress, progress.epoch, target_epoch, target, is_owned, reported)
        case MemberState.UNKNOWN:
            # Written by a newer broker. The member owns nothing, or it would have been fenced: start from its target.
            return _next_step(progress, target_epoch, target_epoch, target, is_owned, reported)


def _next_step(
    progress: AssignmentProgress,
    epoch: int,
    target_epoch: int,
    target: Assignment,
    is_owned: Callable[[TopicIdPartition], bool],
    reported: Assignment | None,
) -> AssignmentProgress:
    kept = progress.assigned & target
    to_revoke = progress.assigned - target
    wanted = target - kept
    free = frozenset(partition for partition in wanted if not is_owned(partition))
    if to_revoke and _still_has(reported, to_revoke):
        return _moved(progress, epoch, MemberState.UNREVOKED_PARTITIONS, kept, to_revoke)
    is_complete = len(free) == len(wanted)
    state = MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS
    return _moved(progress, target_epoch, state, kept | free, NOTHING)


def _moved(
    progress: AssignmentProgress, epoch: int, state: MemberState, assigned: Assignment, pending_revocation: Assignment
) -> AssignmentProgress:
    moved = replace(progress, state=state, assigned=assigned, pending_revocation=pending_revocation)
    if epoch == progress.epoch:
        return moved
    return replace(moved, epoch=epoch, previous_epoch=progress.epoch)


def _still_has(reported: Assignment | None, partitions: Assignment) -> bool:
    """Return whether the member may still own any of `partitions` (True if it does not report)."""
    return reported is None or not reported.isdisjoint(partitions)
