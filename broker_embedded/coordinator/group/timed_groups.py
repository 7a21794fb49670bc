"""Bases of the groups of one shard: their timers, and what KIP-848 groups and share groups have in common.

Memory changes when records are made, before the log has them: two heartbeats that come close together must not both see
the old state. If the append then fails, memory is ahead of the log and the shard asks to be replayed.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from broker_embedded.common.errors import BrokerError
from broker_embedded.metadata.records import ResourceType
from ottla_wire.protocol import ErrorCode

from ..runtime.errors import client_error
from ..runtime.reply import Reply
from ..runtime.shard import CoordinatorRecord, ShardContext, Timer
from .config import GroupConfig
from .heartbeats import HeartbeatRequest, HeartbeatResponse, MembershipConfig
from .member_records import GroupEpoch, RecordKinds
from .timed_group import TimedGroup

log = logging.getLogger(__name__)


class HasDeadlines(Protocol):
    group_id: str

    def earliest_deadline_ms(self) -> int | None: ...


G = TypeVar("G", bound=HasDeadlines)


class Groups(ABC, Generic[G]):
    """Groups by id, each with one timer at most."""

    kind: str
    """As clients name it."""

    def __init__(self, context: ShardContext, config: Callable[[], GroupConfig]) -> None:
        self._context = context
        self._config = config
        self._groups: dict[str, G] = {}
        self._timers: dict[str, tuple[int, Timer]] = {}

    def __iter__(self) -> Iterator[G]:
        return iter(tuple(self._groups.values()))

    def get(self, group_id: str) -> G | None:
        return self._groups.get(group_id)

    def _arm(self, group: G) -> None:
        """Arm one timer per group, at or before its next deadline. Heartbeats only move deadlines away: they cost
        nothing. A group that another one of its id has replaced arms none."""
        if self._groups.get(group.group_id) not in (group, None):
            return
        deadline_ms = self._deadline_ms(group)
        armed = self._timers.get(group.group_id)
        if armed is not None:
            if deadline_ms is not None and armed[0] <= deadline_ms:
                return
            armed[1].cancel()
            del self._timers[group.group_id]
        if deadline_ms is not None:
            timer = self._context.call_at(deadline_ms, lambda: self._wake(group))
            self._timers[group.group_id] = (deadline_ms, timer)

    def _deadline_ms(self, group: G) -> int | None:
        return group.earliest_deadline_ms()

    def _wake(self, group: G) -> None:
        self._timers.pop(group.group_id, None)
        if self._groups.get(group.group_id) is group:
            self._run_deadlines(group)

    @abstractmethod
    def tombstones(self, group: G) -> list[CoordinatorRecord]:
        """Return what takes a group out of the log."""

    @abstractmethod
    def remove(self, group: G) -> None:
        """Take a group out of memory."""

    @abstractmethod
    def _run_deadlines(self, group: G) -> None:
        """Apply the deadlines that have passed, and arm the next one."""


T = TypeVar("T", bound=TimedGroup[Any])
R = TypeVar("R")


class TimedGroups(Groups[T], Generic[T, R]):
    """Groups that are functions of their records; members stay by heartbeats."""

    make: type[T]
    records: RecordKinds[R]

    # -- replay

    def replay(self, group_id: str, record: R) -> None:
        if isinstance(record, GroupEpoch) and record.epoch is None:
            self._groups.pop(group_id, None)
            return
        group = self._groups.get(group_id)
        if group is None:
            if self.records.is_tombstone(record):
                return
            group = self._groups[group_id] = self.make(group_id)
        group.replay(record)

    def on_loaded(self) -> None:
        for group in self:
            if not group.members and group.epoch == 0:
                # What compaction left of a group that was deleted: tombstones of its parts.
                del self._groups[group.group_id]
                continue
            timeout_ms = self._config_of(group).session_timeout_ms
            group.start_deadlines(now_ms=self._context.monotonic_ms(), session_timeout_ms=timeout_ms)
            self._arm(group)

    def unload(self) -> None:
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._groups.clear()

    # -- requests

    def heartbeat(
        self,
        request: HeartbeatRequest,
        reply: Reply[HeartbeatResponse],
        *,
        before: Sequence[CoordinatorRecord] = (),
        on_joined: Callable[[], None] = lambda: None,
    ) -> T | None:
        """Answer when the log has what the heartbeat changed. Returns the group; None if it was refused.

        `before`: records that go first, if the request is accepted (the tombstone of an empty classic group that this
        one replaces); `on_joined` is called then.
        """
        known = self._groups.get(request.group_id)
        group = self.make(request.group_id) if known is None else known
        try:
            records, response = self._handle(group, request)
        except BrokerError as error:
            reply.settle(refusal(error.code, error.message))
            return None
        if known is None:
            self._groups[group.group_id] = group
            on_joined()

        def written(error: ErrorCode) -> None:
            failed = error is not ErrorCode.NONE
            reply.settle(refusal(error, "the group could not be written; try again") if failed else response)

        self._append(group, records, written, before=before)
        self._arm(group)
        return group

    def remove(self, group: T) -> None:
        self._groups.pop(group.group_id, None)
        armed = self._timers.pop(group.group_id, None)
        if armed is not None:
            armed[1].cancel()

    def tombstones(self, group: T) -> list[CoordinatorRecord]:
        return [self.records.encode(group.group_id, record) for record in group.tombstones()]

    @abstractmethod
    def _handle(self, group: T, request: HeartbeatRequest) -> tuple[list[R], HeartbeatResponse]:
        """Return what a heartbeat changes, and the response. Raises BrokerError."""

    @abstractmethod
    def _expire(self, group: T) -> list[R]:
        """Apply the deadlines that have passed, and return the records of what changed."""

    @abstractmethod
    def _config_of(self, group: T) -> MembershipConfig: ...

    def _overrides_of(self, group: T) -> Mapping[str, str]:
        """Return the group's own settings as they are now: a change is seen by the next heartbeat."""
        return self._context.metadata().config_overrides(ResourceType.GROUP, group.group_id)

    def _run_deadlines(self, group: T) -> None:
        self._append(group, self._expire(group), log_failure)
        self._arm(group)

    def _append(
        self,
        group: T,
        records: Sequence[R],
        on_done: Callable[[ErrorCode], None],
        *,
        before: Sequence[CoordinatorRecord] = (),
    ) -> None:
        batch = [*before, *(self.records.encode(group.group_id, record) for record in records)]
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
