"""The state of one share partition at the share coordinator, and what each request makes of it.

state epoch     who initializes or alters the state raises it: a leader with an older one is fenced
leader epoch    the newest leader that has read: an older one is fenced
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from broker_embedded.common.errors import BrokerError
from broker_embedded.share.events import UNCHANGED, PersistedState, StateBatch
from broker_embedded.share.persister import merged
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

NOT_COUNTED = -1


@fact
class ShareState:
    """What a replay of the log yields for a share partition."""

    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = UNCHANGED
    """-1 until a leader has found where the group begins."""
    batches: tuple[StateBatch, ...] = ()
    complete_count: int = NOT_COUNTED
    created_ms: int = 0
    written_ms: int = 0
    updates: int = 0
    """Updates since the snapshot."""


@fact
class StateUpdate:
    """A change since the last snapshot. `start_offset` -1: unchanged."""

    leader_epoch: int
    start_offset: int = UNCHANGED
    batches: tuple[StateBatch, ...] = ()
    complete_count: int = NOT_COUNTED


def initialized(known: ShareState | None, *, state_epoch: int, start_offset: int, now_ms: int) -> ShareState | None:
    """Return the state as it begins; None if it has begun already, and no offset is given. Raises FENCED_STATE_EPOCH.

    A new state begins at snapshot epoch 0; an altered one forgets its batches.
    """
    if known is None:
        return ShareState(state_epoch=state_epoch, start_offset=start_offset, created_ms=now_ms, written_ms=now_ms)
    if state_epoch < known.state_epoch:
        raise _fenced(ErrorCode.FENCED_STATE_EPOCH, "state", state_epoch, known.state_epoch)
    if start_offset == UNCHANGED:
        return None
    return ShareState(
        snapshot_epoch=known.snapshot_epoch + 1,
        state_epoch=state_epoch,
        leader_epoch=known.leader_epoch,
        start_offset=start_offset,
        created_ms=known.created_ms,
        written_ms=now_ms,
    )


def check_leader(known: ShareState, *, leader_epoch: int) -> None:
    """Raise FENCED_LEADER_EPOCH for an older leader than the newest that has read."""
    if 0 <= leader_epoch < known.leader_epoch:
        raise _fenced(ErrorCode.FENCED_LEADER_EPOCH, "leader", leader_epoch, known.leader_epoch)


def check_write(known: ShareState, *, leader_epoch: int, state_epoch: int) -> None:
    """Raise the error of a leader that is fenced."""
    check_leader(known, leader_epoch=leader_epoch)
    if state_epoch < known.state_epoch:
        raise _fenced(ErrorCode.FENCED_STATE_EPOCH, "state", state_epoch, known.state_epoch)


def updated(known: ShareState, update: StateUpdate) -> ShareState:
    """Return the state after an update."""
    before = PersistedState(known.state_epoch, known.start_offset, known.batches)
    after = merged(before, update.start_offset, update.batches)
    counts = update.complete_count != NOT_COUNTED
    return replace(
        known,
        leader_epoch=max(known.leader_epoch, update.leader_epoch),
        start_offset=after.start_offset,
        batches=after.batches,
        complete_count=update.complete_count if counts else known.complete_count,
        updates=known.updates + 1,
    )


def snapshot_of(known: ShareState, *, now_ms: int) -> ShareState:
    """Return the state as the next snapshot has it."""
    return replace(known, snapshot_epoch=known.snapshot_epoch + 1, written_ms=now_ms, updates=0)


def changed_batches(batches: Sequence[StateBatch]) -> tuple[StateBatch, ...]:
    """Return the batches of a write in order, each offset once: what comes later counts."""
    return merged(PersistedState(0, UNCHANGED), UNCHANGED, batches).batches


def _fenced(code: ErrorCode, what: str, found: int, wanted: int) -> BrokerError:
    return BrokerError(code, f"{what} epoch: found {found}, the share coordinator has {wanted}")
