"""The share groups of one shard (`TimedGroups`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla_wire.protocol import ErrorCode

from .consumer.member import LEAVE_EPOCH
from .heartbeats import HeartbeatResponse
from .member_records import GroupEpoch
from .share.group import ShareGroup
from .share.heartbeat import ShareGroupConfig, ShareHeartbeat, expire, heartbeat, leave
from .share.records import RECORDS, ShareRecord
from .timed_groups import TimedGroups, log_failure


class ShareGroups(TimedGroups[ShareGroup, ShareRecord, ShareHeartbeat]):
    """Share groups by id."""

    make = ShareGroup
    records = RECORDS

    def add(self, group: ShareGroup, record: ShareRecord, on_done: Callable[[ErrorCode], None]) -> None:
        """Apply and write a record that no heartbeat makes."""
        group.replay(record)
        self._append(group, [record], on_done)

    def raise_epoch(self, group: ShareGroup) -> None:
        """Move the group epoch, which is the state epoch of what is altered from now on."""
        self.add(group, GroupEpoch(epoch=group.epoch + 1, metadata_hash=group.metadata_hash), log_failure)

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

    def _session_timeout_ms(self, group: ShareGroup) -> int:
        return self._config_of(group).session_timeout_ms

    def _expire(self, group: ShareGroup) -> Sequence[ShareRecord]:
        return expire(group, image=self._context.metadata(), now_ms=self._context.monotonic_ms())
