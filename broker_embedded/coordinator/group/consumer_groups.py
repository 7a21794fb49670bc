"""The KIP-848 groups of one shard, their deadlines and their records (`TimedGroups`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker_embedded.common.errors import BrokerError

from ..runtime.reply import Reply
from ..runtime.shard import CoordinatorRecord
from .consumer.group import ConsumerGroup
from .consumer.heartbeat import ConsumerGroupConfig, ConsumerHeartbeatRequest, heartbeat
from .consumer.leave import expire, leave
from .consumer.member import MemberState
from .consumer.records import ConsumerRecord, GroupEpoch, MemberMetadata, Regex, encode
from .heartbeats import HeartbeatResponse
from .timed_groups import TimedGroups, refusal


class ConsumerGroups(TimedGroups[ConsumerGroup, ConsumerRecord]):
    """KIP-848 groups by id."""

    # -- replay

    def replay(self, group_id: str, record: ConsumerRecord) -> None:
        group = self._groups.get(group_id)
        match record:
            case GroupEpoch(epoch=None):
                self._groups.pop(group_id, None)
                return
            case GroupEpoch() | MemberMetadata(subscription=None) | Regex(resolved=None):
                is_tombstone = not isinstance(record, GroupEpoch)
            case _:
                is_tombstone = False
        if group is None:
            if is_tombstone:
                return
            group = self._groups[group_id] = ConsumerGroup(group_id)
        group.replay(record)

    def on_loaded(self) -> None:
        """Start the timers: a whole session for every member, and a whole rebalance timeout for members with
        revocations."""
        now_ms = self._context.monotonic_ms()
        for group in list(self._groups.values()):
            if not group.members and group.epoch == 0:
                # What compaction left of a group that was deleted: tombstones of its parts.
                del self._groups[group.group_id]
                continue
            config = self._config_of(group)
            for member_id, member in group.members.items():
                group.session_deadlines_ms[member_id] = now_ms + config.session_timeout_ms
                if member.progress.state is MemberState.UNREVOKED_PARTITIONS:
                    deadline_ms = now_ms + member.subscription.rebalance_timeout_ms
                    group.rebalance_deadlines_ms[member_id] = (deadline_ms, member.progress.epoch)
            self._arm(group)

    # -- requests

    def heartbeat(
        self,
        request: ConsumerHeartbeatRequest,
        reply: Reply[HeartbeatResponse],
        *,
        before: Sequence[CoordinatorRecord] = (),
        on_joined: Callable[[], None] = lambda: None,
    ) -> None:
        """Answer when the log has what the heartbeat changed.

        `before`: records that go first, if the request is accepted (the tombstone of an empty classic group that this
        one replaces); `on_joined` is called then.
        """
        group = self._groups.get(request.group_id)
        is_new = group is None
        if group is None:
            group = ConsumerGroup(request.group_id)
        try:
            records, response = self._handle(group, request)
        except BrokerError as error:
            reply.settle(refusal(error.code, error.message))
            return
        if is_new:
            self._groups[group.group_id] = group
            on_joined()
        self._write(group, records, reply, response, before=before)

    def _handle(
        self, group: ConsumerGroup, request: ConsumerHeartbeatRequest
    ) -> tuple[list[ConsumerRecord], HeartbeatResponse]:
        image = self._context.metadata()
        if request.is_leaving:
            return leave(group, request, image=image)
        return heartbeat(
            group,
            request,
            config=self._config_of(group),
            image=image,
            now_ms=self._context.monotonic_ms(),
            wall_ms=self._context.now_ms(),
        )

    def _config_of(self, group: ConsumerGroup) -> ConsumerGroupConfig:
        return self._config().consumer_of(self._overrides_of(group))

    def _encoded(self, group: ConsumerGroup, record: ConsumerRecord) -> CoordinatorRecord:
        return encode(group.group_id, record)

    def _expire(self, group: ConsumerGroup) -> Sequence[ConsumerRecord]:
        return expire(group, image=self._context.metadata(), now_ms=self._context.monotonic_ms())
