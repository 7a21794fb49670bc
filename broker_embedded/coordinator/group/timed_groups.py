"""Base of the groups of one shard that have deadlines: KIP-848 groups and share groups.

Memory changes when records are made, before the log has them: two heartbeats that come close together must not both see
the old state. If the append then fails, memory is ahead of the log and the shard asks to be replayed.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from broker_embedded.metadata.records import ResourceType
from ottla_wire.protocol import ErrorCode

from ..runtime.errors import client_error
from ..runtime.reply import Reply
from ..runtime.shard import CoordinatorRecord, ShardContext, Timer
from .config import GroupConfig
from .heartbeats import HeartbeatResponse

log = logging.getLogger(__name__)


class TimedGroup(Protocol):
    group_id: str

    def earliest_deadline_ms(self) -> int | None: ...

    def tombstones(self) -> Iterable[Any]: ...


G = TypeVar("G", bound=TimedGroup)
R = TypeVar("R")


class TimedGroups(ABC, Generic[G, R]):
    """Groups by id, each with one timer at most."""

    def __init__(self, context: ShardContext, config: Callable[[], GroupConfig]) -> None:
        self._context = context
        self._config = config
        self._groups: dict[str, G] = {}
        self._timers: dict[str, tuple[int, Timer]] = {}

    def __iter__(self) -> Iterator[G]:
        return iter(tuple(self._groups.values()))

    def get(self, group_id: str) -> G | None:
        return self._groups.get(group_id)

    def unload(self) -> None:
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._groups.clear()

    def remove(self, group: G) -> list[CoordinatorRecord]:
        """Take a group out of memory. Returns the tombstones that take it out of the log."""
        self._groups.pop(group.group_id, None)
        armed = self._timers.pop(group.group_id, None)
        if armed is not None:
            armed[1].cancel()
        return self.tombstones(group)

    def tombstones(self, group: G) -> list[CoordinatorRecord]:
        return [self._encoded(group, record) for record in group.tombstones()]

    @abstractmethod
    def _encoded(self, group: G, record: R) -> CoordinatorRecord:
        """Return a record as the log has it."""

    @abstractmethod
    def _expire(self, group: G) -> Sequence[R]:
        """Apply the deadlines that have passed. Returns the records of what changed."""

    def _overrides_of(self, group: G) -> Mapping[str, str]:
        """Return the group's own settings as they are now: a change is seen by the next heartbeat."""
        return self._context.metadata().config_overrides(ResourceType.GROUP, group.group_id)

    def _write(
        self,
        group: G,
        records: Sequence[R],
        reply: Reply[HeartbeatResponse],
        response: HeartbeatResponse,
        *,
        before: Sequence[CoordinatorRecord] = (),
    ) -> None:
        """Answer a heartbeat when the log has what it changed."""

        def written(error: ErrorCode) -> None:
            failed = error is not ErrorCode.NONE
            reply.settle(refusal(error, "the group could not be written; try again") if failed else response)

        self._append(group, records, written, before=before)
        self._arm(group)

    # -- time

    def _arm(self, group: G) -> None:
        deadline_ms = group.earliest_deadline_ms()
        armed = self._timers.get(group.group_id)
        if deadline_ms is None:
            if armed is not None:
                armed[1].cancel()
                del self._timers[group.group_id]
            return
        if armed is not None:
            if armed[0] <= deadline_ms:
                return
            armed[1].cancel()
        timer = self._context.call_at(deadline_ms, lambda: self._wake(group))
        self._timers[group.group_id] = (deadline_ms, timer)

    def _wake(self, group: G) -> None:
        self._timers.pop(group.group_id, None)
        if self._groups.get(group.group_id) is not group:
            return
        self._append(group, self._expire(group), log_failure)
        self._arm(group)

    def _append(
        self,
        group: G,
        records: Sequence[R],
        on_done: Callable[[ErrorCode], None],
        *,
        before: Sequence[CoordinatorRecord] = (),
    ) -> None:
        batch = [*before, *(self._encoded(group, record) for record in records)]
        if not batch:
            on_done(ErrorCode.NONE)
            return

        def appended(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self._context.reload(f"group {group.group_id} could not be written: {error.name}")
            on_done(client_error(error))

        self._context.append(batch, appended)


def refusal(error: ErrorCode, message: str) -> HeartbeatResponse:
    return HeartbeatResponse(error=error, error_message=message or None)


def log_failure(error: ErrorCode) -> None:
    if error is not ErrorCode.NONE:
        log.warning("a change of a group was not written: %s", error.name)
