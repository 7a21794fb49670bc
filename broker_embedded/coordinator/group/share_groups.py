"""The share groups of one shard, their deadlines and their records (`TimedGroups`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker_embedded.common.errors import BrokerError
from ottla_wire.protocol import ErrorCode

from ..runtime.reply import Reply
from ..runtime.shard import CoordinatorRecord
from .consumer.member import JOIN_EPOCH, LEAVE_EPOCH
from .heartbeats import HeartbeatResponse
from .share.group import ShareGroup
from .share.heartbeat import (
    ShareGroupConfig,
    ShareHeartbeat,
    expire,
    heartbeat,
    leave,
)
from .share.records import GroupRecord, MemberRecord, ShareRecord, encode
from .timed_groups import TimedGroups, log_failure, refusal


class ShareGroups(TimedGroups[ShareGroup, ShareRecord]):
    """Share groups by id."""

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

    # -- requests

    def heartbeat(self, request: ShareHeartbeat, reply: Reply[HeartbeatResponse]) -> ShareGroup | None:
        """Answer when the log has what the heartbeat changed. Returns the group; None if it was refused."""
        known = self._groups.get(request.group_id)
        if known is None and request.member_epoch != JOIN_EPOCH:
            message = f"group {request.group_id!r} does not exist"
            reply.settle(refusal(ErrorCode.GROUP_ID_NOT_FOUND, message))
            return None
        group = ShareGroup(request.group_id) if known is None else known
        try:
            records, response = self._handle(group, request)
        except BrokerError as error:
            reply.settle(refusal(error.code, error.message))
            return None
        self._groups[group.group_id] = group
        self._write(group, records, reply, response)
        return group

    def add(self, group: ShareGroup, record: ShareRecord, on_done: Callable[[ErrorCode], None]) -> None:
        """Apply and write a record that no heartbeat makes."""
        group.replay(record)
        self._append(group, [record], on_done)

    def raise_epoch(self, group: ShareGroup) -> None:
        """Move the group epoch, which is the state epoch of what is altered from now on."""
        self.add(group, GroupRecord(epoch=group.epoch + 1, metadata_hash=group.metadata_hash), log_failure)

    def _handle(self, group: ShareGroup, request: ShareHeartbeat) -> tuple[list[ShareRecord], HeartbeatResponse]:
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
        return self._config().share_of(self._overrides_of(group))

    def _encoded(self, group: ShareGroup, record: ShareRecord) -> CoordinatorRecord:
        return encode(group.group_id, record)

    def _expire(self, group: ShareGroup) -> Sequence[ShareRecord]:
        return expire(group, image=self._context.metadata(), now_ms=self._context.monotonic_ms())
