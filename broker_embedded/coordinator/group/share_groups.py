"""The share groups of one shard, their deadlines and their records.

As with KIP-848 groups, memory changes when records are made, before the log has them. If the append then fails, memory
is ahead of the log and the shard asks to be replayed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from broker_embedded.common.errors import BrokerError
from broker_embedded.metadata.records import ResourceType
from ottla_wire.protocol import ErrorCode

from ..runtime.errors import client_error
from ..runtime.reply import Reply
from ..runtime.shard import CoordinatorRecord, ShardContext, Timer
from .config import GroupConfig
from .consumer.member import JOIN_EPOCH, LEAVE_EPOCH
from .share.group import ShareGroup
from .share.heartbeat import (
    ShareGroupConfig,
    ShareHeartbeat,
    ShareHeartbeatResponse,
    expire,
    heartbeat,
    leave,
)
from .share.records import GroupRecord, MemberRecord, ShareRecord, encode

log = logging.getLogger(__name__)


class ShareGroups:
    """Share groups by id."""

    def __init__(self, context: ShardContext, config: Callable[[], GroupConfig]) -> None:
        self._context = context
        self._config = config
        self._groups: dict[str, ShareGroup] = {}
        self._timers: dict[str, tuple[int, Timer]] = {}

    def __iter__(self) -> Iterator[ShareGroup]:
        return iter(tuple(self._groups.values()))

    def get(self, group_id: str) -> ShareGroup | None:
        return self._groups.get(group_id)

    # -- replay

    def replay(self, group_id: str, record: ShareRecord) -> None:
        group = self._groups.get(group_id)
        match record:
            case GroupRecord(epoch=None):
                self._groups.pop(group_id, None)
                return
            case GroupRecord() | MemberRecord():
                pass
            case _ if group is None:
                return  # compaction left a part of a group that was deleted
        if group is None:
            group = self._groups[group_id] = ShareGroup(group_id)
        group.replay(record)

    def on_loaded(self) -> None:
        """Give every member a whole session."""
        now_ms = self._context.monotonic_ms()
        for group in list(self._groups.values()):
            if not group.members and group.epoch == 0:
                del self._groups[group.group_id]
                continue
            timeout_ms = self._config_of(group).session_timeout_ms
            group.session_deadlines_ms = dict.fromkeys(group.members, now_ms + timeout_ms)
            self._arm(group)

    def unload(self) -> None:
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._groups.clear()

    # -- requests

    def heartbeat(self, request: ShareHeartbeat, reply: Reply[ShareHeartbeatResponse]) -> ShareGroup | None:
        """Answer when the log has what the heartbeat changed. Returns the group; None if it was refused."""
        known = self._groups.get(request.group_id)
        if known is None and request.member_epoch != JOIN_EPOCH:
            message = f"group {request.group_id!r} does not exist"
            reply.settle(ShareHeartbeatResponse(error=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message))
            return None
        group = ShareGroup(request.group_id) if known is None else known
        try:
            records, response = self._handle(group, request)
        except BrokerError as error:
            reply.settle(_refusal(error.code, error.message))
            return None
        self._groups[group.group_id] = group
        self._append(group, records, lambda error: _answer(reply, response, error))
        self._arm(group)
        return group

    def add(self, group: ShareGroup, record: ShareRecord, on_done: Callable[[ErrorCode], None]) -> None:
        """Apply and write a record that no heartbeat makes."""
        group.replay(record)
        self._append(group, [record], on_done)

    def raise_epoch(self, group: ShareGroup) -> None:
        """Move the group epoch, which is the state epoch of what is altered from now on."""
        self.add(group, GroupRecord(epoch=group.epoch + 1, metadata_hash=group.metadata_hash), _log_failure)

    def _handle(self, group: ShareGroup, request: ShareHeartbeat) -> tuple[list[ShareRecord], ShareHeartbeatResponse]:
        image = self._context.metadata()
        if request.member_epoch == LEAVE_EPOCH:
            return leave(group, request, image=image)
        return heartbeat(
            group,
            request,
            config=self._config_of(group),
            image=image,
            now_ms=self._context.monotonic_ms(),
            wall_ms=self._context.now_ms(),
        )

    def _config_of(self, group: ShareGroup) -> ShareGroupConfig:
        """Return the settings as they are now: a change is seen by the next heartbeat."""
        overrides = self._context.metadata().config_overrides(ResourceType.GROUP, group.group_id)
        return self._config().share_of(overrides)

    def remove(self, group: ShareGroup) -> None:
        """Take a deleted group out of memory."""
        self._groups.pop(group.group_id, None)
        armed = self._timers.pop(group.group_id, None)
        if armed is not None:
            armed[1].cancel()

    def tombstones(self, group: ShareGroup) -> list[CoordinatorRecord]:
        return [encode(group.group_id, record) for record in group.tombstones()]

    # -- time

    def _arm(self, group: ShareGroup) -> None:
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

    def _wake(self, group: ShareGroup) -> None:
        self._timers.pop(group.group_id, None)
        if self._groups.get(group.group_id) is not group:
            return
        records = expire(group, image=self._context.metadata(), now_ms=self._context.monotonic_ms())
        self._append(group, records, _log_failure)
        self._arm(group)

    def _append(self, group: ShareGroup, records: Sequence[ShareRecord], on_done: Callable[[ErrorCode], None]) -> None:
        if not records:
            on_done(ErrorCode.NONE)
            return

        def appended(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self._context.reload(f"share group {group.group_id} could not be written: {error.name}")
            on_done(client_error(error))

        self._context.append([encode(group.group_id, record) for record in records], appended)


def _answer(reply: Reply[ShareHeartbeatResponse], response: ShareHeartbeatResponse, error: ErrorCode) -> None:
    reply.settle(response if error is ErrorCode.NONE else _refusal(error, "the group could not be written; try again"))


def _refusal(error: ErrorCode, message: str) -> ShareHeartbeatResponse:
    return ShareHeartbeatResponse(error=error, error_message=message or None)


def _log_failure(error: ErrorCode) -> None:
    if error is not ErrorCode.NONE:
        log.warning("a change of a share group was not written: %s", error.name)
