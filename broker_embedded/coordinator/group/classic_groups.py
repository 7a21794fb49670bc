"""The classic groups of one shard, their deadlines and their records: everything but offsets.

They are stepped here: answers go to the replies that wait, stores to the log, the next deadline to one timer
per group.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla_wire.protocol import ErrorCode

from ..runtime.errors import client_error
from ..runtime.reply import Reply
from ..runtime.shard import CoordinatorRecord, ShardContext
from . import records
from .classic import AnswerRequest, ClassicGroup, Event, Store, Stored, Tick, Unload, step
from .config import GroupConfig
from .timed_groups import Groups

log = logging.getLogger(__name__)


class ClassicGroups(Groups[ClassicGroup]):
    """Classic groups by id. A group that was never stored lives in memory alone, until it has a first generation."""

    kind = "classic"

    def __init__(self, context: ShardContext, config: Callable[[], GroupConfig]) -> None:
        super().__init__(context, config)
        self._restored: dict[str, records.ClassicGroupRecord] = {}

    def get_or_create(self, group_id: str) -> ClassicGroup:
        group = self._groups.get(group_id)
        if group is None:
            group = ClassicGroup(group_id, self._config().classic)
            group.state_since_ms = self._context.now_ms()
            self._groups[group_id] = group
        return group

    # -- replay

    def replay(self, record: records.ClassicGroupRecord) -> None:
        """Keep the last record of each group; groups are built from them when all is read."""
        if record.snapshot is None:
            self._restored.pop(record.group_id, None)
        else:
            self._restored[record.group_id] = record

    def on_loaded(self) -> None:
        now_ms = self._context.monotonic_ms()
        config = self._config().classic
        for group_id, record in self._restored.items():
            assert record.snapshot is not None
            group = ClassicGroup.restore(group_id, record.snapshot, config=config, now_ms=now_ms)
            # Old records do not say since when: the retention of an empty group's offsets starts now.
            group.state_since_ms = self._context.now_ms() if record.state_since_ms < 0 else record.state_since_ms
            self._groups[group_id] = group
            self._arm(group)
        self._restored.clear()

    def unload(self, error: ErrorCode) -> None:
        for group in self:
            self.remove(group, error)

    # -- events

    def run(self, group: ClassicGroup, event: Event) -> None:
        """Step the group and carry out its effects."""
        state_before = group.state
        effects = step(group, event, self._context.monotonic_ms())
        if group.state is not state_before:
            group.state_since_ms = self._context.now_ms()
            log.debug(
                "group %s: %s -> %s, generation %d, %d members",
                group.group_id,
                state_before.value,
                group.state.value,
                group.generation,
                len(group.members),
            )
        # The log first: an answer may bring the client's next request before we are back here.
        for effect in effects:
            if isinstance(effect, Store):
                self._store(group, effect)
        self._arm(group)
        for effect in effects:
            if isinstance(effect, AnswerRequest):
                assert isinstance(effect.ticket, Reply)
                effect.ticket.settle(effect.answer)

    def tombstones(self, group: ClassicGroup) -> list[CoordinatorRecord]:
        return [records.group_record(group.group_id, None)]

    def remove(self, group: ClassicGroup, error: ErrorCode = ErrorCode.GROUP_ID_NOT_FOUND) -> None:
        """Drop a deleted or moved group: waiting requests get `error`."""
        self._groups.pop(group.group_id, None)
        self.run(group, Unload(error=error))

    def _store(self, group: ClassicGroup, store: Store) -> None:
        record = records.group_record(group.group_id, store.snapshot, state_since_ms=group.state_since_ms)

        def stored(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                log.warning("group %s generation %d was not stored: %s", group.group_id, group.generation, error.name)
            self.run(group, Stored(store_id=store.store_id, error=client_error(error)))

        self._context.append([record], stored)

    def _deadline_ms(self, group: ClassicGroup) -> int | None:
        return group.wake_at_ms

    def _run_deadlines(self, group: ClassicGroup) -> None:
        self.run(group, Tick())
