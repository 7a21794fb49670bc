"""The share groups of one shard (`TimedGroups`)."""

from __future__ import annotations

from collections.abc import Callable

from ottla_wire.protocol import ErrorCode

from .heartbeats import HeartbeatRequest, HeartbeatResponse, MembershipConfig
from .member_records import GroupEpoch
from .share.group import ShareGroup
from .share.heartbeat import expire, heartbeat, leave
from .share.records import RECORDS, ShareRecord
from .timed_groups import TimedGroups, log_failure


class ShareGroups(TimedGroups[ShareGroup, ShareRecord]):
    """Share groups by id."""

    kind, make, records = "share", ShareGroup, RECORDS

    def add(self, group: ShareGroup, record: ShareRecord, on_done: Callable[[ErrorCode], None]) -> None:
        """Apply and write a record that no heartbeat makes."""
        group.replay(record)
        self._append(group, [record], on_done)

    def raise_epoch(self, group: ShareGroup) -> None:
        """Move the group epoch, which is the state epoch of what is altered from now on."""
        self.add(group, GroupEpoch(epoch=group.epoch + 1, metadata_hash=group.metadata_hash), log_failure)

    def _handle(self, group: ShareGroup, request: HeartbeatRequest) -> tuple[list[ShareRecord], HeartbeatResponse]:
        image, now_ms = self._context.metadata(), self._context.monotonic_ms()
        if request.is_leaving:
            return leave(group, request, image=image)
        config, wall_ms = self._config_of(group), self._context.now_ms()
        return heartbeat(group, request, config=config, image=image, now_ms=now_ms, wall_ms=wall_ms)

    def _expire(self, group: ShareGroup) -> list[ShareRecord]:
        return expire(group, image=self._context.metadata(), now_ms=self._context.monotonic_ms())

    def _config_of(self, group: ShareGroup) -> MembershipConfig:
        return self._config().share_of(self._overrides_of(group))
