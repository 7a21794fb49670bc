"""All share partitions of one partition of `__share_group_state`.

Memory changes when records are made, and the answer waits until the log has them. If the append fails, memory is ahead
of the log and the shard asks to be replayed. A state is a snapshot, then updates; after some hundred of them another
snapshot.

The topic is not compacted. Now and then, when most of the log is older than that, all states are written once more, and
what lies before those snapshots is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from broker_embedded.common.errors import BrokerError
from broker_embedded.share.events import PersistedState, StateBatch
from broker_embedded.share.persister import OnRead, ShareKey
from ottla_wire.protocol import ErrorCode

from ..runtime.errors import client_error
from ..runtime.recurring import Recurring
from ..runtime.shard import CoordinatorRecord, ShardContext
from . import records
from .state import (
    ShareState,
    StateUpdate,
    changed_batches,
    check_leader,
    check_write,
    initialized,
    snapshot_of,
    updated,
)

log = logging.getLogger(__name__)

OnDone = Callable[[ErrorCode], None]

_SPARE_RECORDS = 1_000
"""Fewer records than this are not worth a deletion."""
_SNAPSHOTS_AT_ONCE = 100


class ShareShard:
    """Implements `runtime.shard.Shard`. Requests raise BrokerError if they are refused, and report later otherwise."""

    def __init__(
        self,
        partition: int,
        context: ShardContext,
        updates_per_snapshot: Callable[[], int],
        prune_interval_ms: Callable[[], int],
    ) -> None:
        self.partition = partition
        self._context = context
        self._updates_per_snapshot = updates_per_snapshot
        self._states: dict[ShareKey, ShareState] = {}
        self._waiting: dict[object, OnDone] = {}
        """Requests that changed nothing, and wait for what was written before them."""
        self._pruning = Recurring(context, prune_interval_ms, self._prune)

    # -- Shard

    def replay(self, record: CoordinatorRecord, *, timestamp_ms: int, producer_id: int) -> None:
        decoded = records.decode(record)
        if decoded is None:
            log.warning("__share_group_state-%d: a record of an unknown kind is ignored", self.partition)
            return
        key, change = decoded
        if change is None:
            self._states.pop(key, None)
        elif isinstance(change, ShareState):
            self._states[key] = change
        elif key in self._states:  # its snapshot may have been deleted with it
            self._states[key] = updated(self._states[key], change)

    def replay_end_of_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Do nothing: this topic has no transactions."""

    def on_loaded(self) -> None:
        """Serve."""
        self._pruning.start()

    def unload(self, error: ErrorCode) -> None:
        self._pruning.stop()
        self._states.clear()
        waiting, self._waiting = self._waiting, {}
        for on_done in waiting.values():
            on_done(error)

    # -- requests

    def get(self, key: ShareKey) -> ShareState | None:
        return self._states.get(key)

    def keys(self) -> list[ShareKey]:
        return list(self._states)

    def initialize(self, key: ShareKey, *, state_epoch: int, start_offset: int, on_done: OnDone) -> None:
        """Begin a state, or let it begin again at an offset. Raises FENCED_STATE_EPOCH."""
        now_ms = self._context.now_ms()
        known = self._states.get(key)
        state = initialized(known, state_epoch=state_epoch, start_offset=start_offset, now_ms=now_ms)
        if state is None:
            self._when_written(on_done)
            return
        self._states[key] = state
        self._append([records.snapshot_record(key, state)], on_done)

    def read(self, key: ShareKey, *, leader_epoch: int, on_done: OnRead) -> None:
        """Report the state to a leader, which fences earlier leaders. Raises FENCED_LEADER_EPOCH, INVALID_REQUEST."""
        known = self._known(key)
        check_leader(known, leader_epoch=leader_epoch)

        def written(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                on_done(BrokerError(error, "the share coordinator could not write"))
            else:
                on_done(PersistedState(known.state_epoch, known.start_offset, known.batches))

        if leader_epoch > known.leader_epoch:
            self._update(key, StateUpdate(leader_epoch=leader_epoch), written)
        else:
            self._when_written(written)

    def write(
        self,
        key: ShareKey,
        *,
        leader_epoch: int,
        state_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
        complete_count: int,
        on_done: OnDone,
    ) -> None:
        """Write the state that a leader reports. Raises FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH, INVALID_REQUEST."""
        check_write(self._known(key), leader_epoch=leader_epoch, state_epoch=state_epoch)
        update = StateUpdate(
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            batches=changed_batches(batches),
            complete_count=complete_count,
        )
        self._update(key, update, on_done)

    def delete(self, key: ShareKey, on_done: OnDone) -> None:
        """Forget a state; one that is not there is forgotten already."""
        if self._states.pop(key, None) is None:
            on_done(ErrorCode.NONE)
        else:
            self._append([records.tombstone(key)], on_done)

    # -- writing

    def _known(self, key: ShareKey) -> ShareState:
        known = self._states.get(key)
        if known is None:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"the state of {key} is not initialized")
        return known

    def _update(self, key: ShareKey, update: StateUpdate, on_done: OnDone) -> None:
        known = self._states[key]
        state = updated(known, update)
        if state.updates > self._updates_per_snapshot():
            state = snapshot_of(state, now_ms=self._context.now_ms())
            record = records.snapshot_record(key, state)
        else:
            record = records.update_record(key, update, snapshot_epoch=known.snapshot_epoch)
        self._states[key] = state
        self._append([record], on_done)

    def _append(self, batch: Sequence[CoordinatorRecord], on_done: OnDone) -> None:
        def appended(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self._context.reload(f"a share partition could not be written: {error.name}")
            on_done(client_error(error))

        self._context.append(batch, appended)

    def _when_written(self, on_done: OnDone) -> None:
        """Report once everything that was changed before is on all replicas."""
        ticket = object()
        self._waiting[ticket] = on_done

        def written() -> None:
            if self._waiting.pop(ticket, None) is not None:
                on_done(ErrorCode.NONE)

        self._context.when_replicated(written)

    # -- deleting what is old

    def _prune(self) -> None:
        """Write each state again, and delete what is older, if most of the log is."""
        start, end = self._context.log_range()
        if end - start < _SPARE_RECORDS + 2 * len(self._states):
            return
        now_ms = self._context.now_ms()
        snapshots: list[CoordinatorRecord] = []
        for key, known in self._states.items():
            state = self._states[key] = snapshot_of(known, now_ms=now_ms)
            snapshots.append(records.snapshot_record(key, state))
        waiting = [snapshots[at : at + _SNAPSHOTS_AT_ONCE] for at in range(0, len(snapshots), _SNAPSHOTS_AT_ONCE)]

        def append_next(error: ErrorCode = ErrorCode.NONE) -> None:
            if error is not ErrorCode.NONE:
                return  # the old records are all that there is, and the shard is replayed
            if waiting:
                self._append(waiting.pop(), append_next)
            else:
                self._delete_before(end)

        append_next()

    def _delete_before(self, offset: int) -> None:
        try:
            self._context.delete_before(offset)
        except BrokerError as error:  # as a disk that fails: the next time
            log.warning("__share_group_state-%d: old records stay: %s", self.partition, error.message)
