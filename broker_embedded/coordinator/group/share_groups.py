"""The share groups of one shard (`TimedGroups`)."""

from __future__ import annotations

from collections.abc import Callable

from ottla_wire.protocol import ErrorCode

from .heartbeats import MembershipConfig
from .member_records import GroupEpoch
from .share.group import ShareGroup
from .share.heartbeat import expire, heartbeat, leave
from .share.records import RECORDS, ShareRecord
from .timed_groups import TimedGroups, log_failure


class ShareGroups(TimedGroups[ShareGroup, ShareRecord]):
    """Share groups by id."""

    kind, make, records = "share", ShareGroup, RECORDS
    stay, leave, expire = staticmethod(heartbeat), staticmethod(leave), staticmethod(expire)

    def add(self, group: ShareGroup, record: ShareRecord, on_done: Callable[[ErrorCode], None]) -> None:
        """Apply and write a record that no heartbeat makes."""
        group.replay(record)
        self._append(group, [record], on_done)

    def raise_epoch(self, group: ShareGroup) -> None:
        """Move the group epoch, which is the state epoch of what is altered from now on."""
        self.add(group, GroupEpoch(epoch=group.epoch + 1, metadata_hash=group.metadata_hash), log_failure)

    def _config_of(self, group: ShareGroup) -> MembershipConfig:
        return self._config().share_of(self._overrides_of(group))
